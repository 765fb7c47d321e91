"""An event on its way out, and the seam that it leaves by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from utterd.broker.message import History, Message
from utterd.config import Lane
from utterd.errors import JobError
from utterd_schemas.events import HEADER_PREFIX, SPEC_VERSION, EventType


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A CloudEvent, ready to be sent.

    Attributes:
        id: the same for the same event of the same job.
        source: CloudEvents `source`.
        subject: the job's id.
        data: JSON.
        correlation_id: the job's.
        reply_to: queue that wants a copy.
        trace: `traceparent` and `tracestate` of the job.
    """

    id: UUID
    type: EventType
    source: str
    subject: str
    time: datetime
    data: bytes
    correlation_id: str | None = None
    reply_to: str | None = None
    trace: Mapping[str, str] = field(default_factory=dict)

    def headers(self) -> dict[str, str]:
        """The attributes as AMQP headers, in CloudEvents binary mode, and the trace context."""
        attributes = {
            "specversion": SPEC_VERSION,
            "id": str(self.id),
            "source": self.source,
            "type": str(self.type),
            "subject": self.subject,
            "time": self.time.isoformat().replace("+00:00", "Z"),
        }
        return {HEADER_PREFIX + name: value for name, value in attributes.items()} | dict(
            self.trace
        )


class EventSink(Protocol):
    """Where outcomes go. All calls return when the broker has confirmed, and not before."""

    async def send(self, event: Event) -> None:
        """Send an event, and a copy to the job's `reply_to` where it is terminal."""
        ...

    async def bury(self, message: Message, error: JobError) -> None:
        """Put a copy of a job that can't be done among the dead, with the reason."""
        ...

    async def postpone(
        self, message: Message, lane: Lane, history: History, *, delay_s: int
    ) -> None:
        """Put a copy of a job where it waits for its next attempt, and comes back by its lane."""
        ...
