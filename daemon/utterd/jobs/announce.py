"""Tells the world what became of a job."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from utterd.broker.event import Event, EventSink
from utterd.jobs.order import Sender
from utterd.ops.tracing import NoTracing, Tracing
from utterd_schemas.events import EventData, event_id


@dataclass(frozen=True, slots=True)
class Announcer:
    """Makes CloudEvents of event data and hands them to a sink.

    Attributes:
        sink: where events go.
        source: CloudEvents `source`.
        now: the clock; instants have a zone.
        tracing: opens a span for each event; inside a trace, events carry on from that.
    """

    sink: EventSink
    source: str
    now: Callable[[], datetime]
    tracing: Tracing = field(default_factory=NoTracing)

    async def announce(self, data: EventData, sender: Sender, *, sequence: int = 0) -> None:
        """Send one event; returns when the broker has confirmed it.

        Args:
            data: what to say.
            sender: whom to tell.
            sequence: tells events of one type and job apart; terminal events have none.
        """
        with self.tracing.send(data.type):
            await self.sink.send(
                Event(
                    id=event_id(data.job_id, data.type, sequence),
                    type=data.type,
                    source=self.source,
                    subject=data.job_id,
                    time=self.now(),
                    data=data.model_dump_json().encode(),
                    correlation_id=sender.correlation_id,
                    reply_to=sender.reply_to,
                    trace=self.tracing.headers() or sender.trace,
                )
            )
