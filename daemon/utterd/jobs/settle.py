"""Settles deliveries: the last step of each, once, after the broker has confirmed the rest."""

from dataclasses import dataclass

import structlog

from utterd.broker.event import EventSink
from utterd.broker.message import Delivery
from utterd.errors import JobError
from utterd.jobs.announce import Announcer
from utterd.jobs.order import Order, Sender
from utterd.jobs.outcome import failed
from utterd.jobs.retry import history_after, retry_delay_s
from utterd.ops.metrics import Metrics
from utterd.ops.tracing import Tracing
from utterd_schemas.events import CompletedData, EventData

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settler:
    """The ways in which the work on a delivery can end.

    Attributes:
        sink: where dead and postponed jobs go.
        announcer: makes the events.
        metrics: counts the ends.
        tracing: told of failures.
        retry_delays_s: waits before a failed job's further attempts, in seconds.
    """

    sink: EventSink
    announcer: Announcer
    metrics: Metrics
    tracing: Tracing
    retry_delays_s: tuple[int, ...]

    async def conclude(self, delivery: Delivery, order: Order, event: EventData) -> None:
        """A terminal event, and only then an ack."""
        await self.announcer.announce(event, order.sender)
        if isinstance(event, CompletedData):
            self.metrics.job_completed(order.lane, event)
        else:
            self.metrics.job_settled(order.lane, event.type.outcome)
        await delivery.ack()

    async def hand_back(self, delivery: Delivery) -> None:
        """Somebody else's, or ours again later."""
        self.metrics.job_settled(delivery.lane, "handed_back")
        await delivery.release()

    async def give_up(self, delivery: Delivery, sender: Sender, error: JobError) -> None:
        """A `failed` event, a copy among the dead, and only then an ack."""
        message = delivery.message
        log.warning(
            "job_failed",
            job_id=sender.job_id,
            code=str(error.code),
            attempt=sender.history.attempt,
            body_bytes=len(message.body),
        )
        if sender.job_id is not None:
            await self.announcer.announce(failed(sender.job_id, sender, error), sender)
        await self.sink.bury(message, error)
        self._count(delivery, error, "failed")
        await delivery.ack()

    async def try_again_or_give_up(self, delivery: Delivery, order: Order, error: JobError) -> None:
        """A copy that waits for the next attempt, and only then an ack; or the end."""
        history = order.sender.history
        delay_s = retry_delay_s(error, history, self.retry_delays_s)
        if delay_s is None:
            await self.give_up(delivery, order.sender, error)
            return
        log.warning("job_postponed", code=str(error.code), delay_s=delay_s)
        await self.sink.postpone(
            delivery.message, order.lane, history_after(error, history), delay_s=delay_s
        )
        self._count(delivery, error, "postponed")
        await delivery.ack()

    async def reject(self, delivery: Delivery) -> None:
        """Nothing else is possible: the broker gives the job up."""
        self.metrics.job_settled(delivery.lane, "rejected")
        await delivery.reject()

    def _count(self, delivery: Delivery, error: JobError, outcome: str) -> None:
        self.metrics.attempt_failed(delivery.lane, error.code, outcome)
        self.tracing.failed(error.code)
