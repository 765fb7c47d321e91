"""A decoded job together with what its message says about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from utterd.broker.message import FIRST_ATTEMPT, TRACE_HEADERS, Delivery, History, Message
from utterd.config import Lane
from utterd.ops.tracing import TracedDelivery
from utterd_schemas.job import Job

MAX_TRACE_CHARS = 512
"""The longest `tracestate` that W3C Trace Context asks everybody to pass on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Whom to tell about a job, known even when the job itself can't be read.

    Attributes:
        job_id: the job's id; None when nothing in the message tells it.
        correlation_id: for the events' AMQP property of the same name.
        reply_to: queue that wants a copy of the terminal event.
        trace: `traceparent` and `tracestate`.
        history: how the job fared so far.
        labels: repeated in every event.
    """

    job_id: str | None
    correlation_id: str | None = None
    reply_to: str | None = None
    trace: Mapping[str, str] = field(default_factory=dict)
    history: History = FIRST_ATTEMPT
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, message: Message, *, job_id: str | None, labels: Mapping[str, str] | None = None
    ) -> "Sender":
        trace = {
            name: value
            for name in TRACE_HEADERS
            if (value := message.text_header(name)) and len(value) <= MAX_TRACE_CHARS
        }
        return cls(
            job_id=job_id,
            correlation_id=message.correlation_id,
            reply_to=message.reply_to,
            trace=trace,
            history=message.history,
            labels=labels or {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job that can be worked on.

    Attributes:
        job: as validated.
        job_id: the publisher's, or one made for it.
        sender: whom to tell.
        lane: that it came in by.
        expires_at: the earlier of the job's own and the message's expiry.
        published_at: when the publisher says it was sent.
        queue_s: how long it waited, where the message tells.
    """

    job: Job
    job_id: str
    sender: Sender
    lane: Lane
    expires_at: datetime | None
    published_at: datetime | None
    queue_s: float | None


def traced(delivery: Delivery, order: Order) -> TracedDelivery:
    """What a trace tells of an order's delivery."""
    return TracedDelivery(
        lane=order.lane,
        routing_key=delivery.message.routing_key,
        job_id=order.job_id,
        correlation_id=order.sender.correlation_id,
        body_bytes=len(delivery.message.body),
        parent=order.sender.trace,
    )
