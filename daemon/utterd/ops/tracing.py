"""The seam to distributed tracing, and what stands there while nobody traces."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from utterd.config import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedDelivery:
    """What a trace tells of a delivery; nothing of what the job says.

    Attributes:
        lane: that it came by.
        routing_key: that it was published with.
        job_id: the job's.
        correlation_id: the publisher's, if any.
        body_bytes: size of the message.
        parent: `traceparent` and `tracestate` of the publisher.
    """

    lane: Lane
    routing_key: str
    job_id: str
    correlation_id: str | None
    body_bytes: int
    parent: Mapping[str, str] = field(default_factory=dict)


class Tracing(Protocol):
    """Opens spans; each is current inside its block."""

    def job(self, delivery: TracedDelivery) -> AbstractContextManager[None]:
        """The work on one delivery, from decode to settle."""
        ...

    def step(self, name: str) -> AbstractContextManager[None]:
        """A step of the current job: plan, lookup, speak, encode or store."""
        ...

    def send(self, event_type: str) -> AbstractContextManager[None]:
        """An event on its way."""
        ...

    def failed(self, code: str) -> None:
        """The current job failed, with this error code."""
        ...

    def headers(self) -> Mapping[str, str]:
        """`traceparent` and `tracestate` of the current span; nothing without one."""
        ...


class NoTracing:
    """A `Tracing` that does nothing: a job's trace context goes on to its events as it came."""

    def job(self, delivery: TracedDelivery) -> AbstractContextManager[None]:  # noqa: ARG002 - the protocol's
        return nullcontext()

    def step(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 - the protocol's
        return nullcontext()

    def send(self, event_type: str) -> AbstractContextManager[None]:  # noqa: ARG002 - the protocol's
        return nullcontext()

    def failed(self, code: str) -> None:
        pass

    def headers(self) -> Mapping[str, str]:
        return {}
