"""The end of a job that the broker gave up: look whether it was finished, announce, settle."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from utterd.broker.event import EventSink
from utterd.broker.lapse import DELIVERY_LIMIT, Lapse, read_lapse
from utterd.broker.message import Delivery
from utterd.config import BrokerSettings
from utterd.errors import (
    DeliveryLimitError,
    EnvironmentFaultError,
    InternalError,
    JobError,
    PermanentError,
)
from utterd.jobs.announce import Announcer
from utterd.jobs.decode import UndecodableError, decode, sender_of
from utterd.jobs.lookup import lookup
from utterd.jobs.order import Order, Sender
from utterd.jobs.outcome import completed, failed
from utterd.jobs.planning import JobPlanner
from utterd.jobs.stopwatch import Stopwatch
from utterd.jobs.store import link_to
from utterd.ops.metrics import Metrics
from utterd.store.protocol import ObjectStore
from utterd_schemas.events import CompletedData, ExpiredData

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a job is to be announced as failed, and to whom."""

    sender: Sender
    error: JobError


@dataclass(frozen=True, slots=True)
class _Expiry:
    """When a job's time was over, and whom to tell."""

    job_id: str
    sender: Sender
    at: datetime


_Ending = CompletedData | _Expiry | _Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class LapsedRunner:
    """Gives each job that the broker gave up the one terminal event that it lacks.

    A daemon may have announced an ending just before, and lost the acknowledgement. That of a
    finished job is repeated, for its audio stands in the store; and that of a job which can't be
    read or planned, for both are as they were.

    Attributes:
        settings: names and limits of the queues.
        planner: finds the key of a job.
        objects: where audio lies.
        sink: where dead jobs go.
        announcer: makes the events.
        now: the clock; instants have a zone.
        monotonic: the clock for durations, in seconds.
        max_message_bytes: the largest body.
        metrics: counts the endings.
        presign_expires_s: lifetime of links in events; None for no links.
    """

    settings: BrokerSettings
    planner: JobPlanner
    objects: ObjectStore
    sink: EventSink
    announcer: Announcer
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    max_message_bytes: int
    metrics: Metrics
    presign_expires_s: int | None = None

    async def run(self, delivery: Delivery) -> None:
        """Tell of one lapsed job and settle its delivery, whatever happens on the way."""
        try:
            await self._run(delivery, read_lapse(delivery.message, self.settings))
        except Exception as bug:
            log.exception("delivery_met_a_bug", error=type(bug).__name__)
            await delivery.reject()

    async def _run(self, delivery: Delivery, lapse: Lapse) -> None:
        try:
            ending = await self._ending(lapse)
        except EnvironmentFaultError as fault:
            log.warning("lapsed_job_handed_back", code=str(fault.code))
            await delivery.release()
            return
        match ending:
            case CompletedData():
                log.info("lapsed_job_was_completed", job_id=ending.job_id, reason=lapse.reason)
                await self.announcer.announce(ending, sender_of(lapse.message))
            case _Expiry(job_id, sender, at):
                log.info("job_expired", job_id=job_id)
                await self.announcer.announce(
                    ExpiredData(
                        job_id=job_id,
                        labels=dict(sender.labels),
                        expires_at=at,
                        attempts=sender.history.attempt,
                    ),
                    sender,
                )
            case _Failure(sender, error):
                log.warning("job_failed", job_id=sender.job_id, code=str(error.code))
                if sender.job_id is not None:
                    await self.announcer.announce(failed(sender.job_id, sender, error), sender)
                await self.sink.bury(lapse.message, error)
        self.metrics.job_settled("lapsed", _outcome_of(ending))
        await delivery.ack()

    async def _ending(self, lapse: Lapse) -> _Ending:
        """How the job ended.

        Raises:
            EnvironmentFaultError: the store does not tell.
        """
        stranger = sender_of(lapse.message)
        if lapse.is_suspect and stranger.job_id is not None:
            return self._ending_by_reason(lapse, stranger, None)
        try:
            order = decode(lapse, max_bytes=self.max_message_bytes, now=self.now())
        except UndecodableError as refusal:
            return _Failure(refusal.sender, refusal.error)
        except Exception as bug:
            log.exception("lapsed_job_met_a_bug", error=type(bug).__name__)
            return self._ending_by_reason(lapse, stranger, None)
        try:
            return await self._ending_of(order, lapse)
        except EnvironmentFaultError:
            raise
        except Exception as bug:
            log.exception("lapsed_job_met_a_bug", error=type(bug).__name__)
            return self._ending_by_reason(lapse, order.sender, order.expires_at)

    async def _ending_of(self, order: Order, lapse: Lapse) -> _Ending:
        try:
            completion = await self._completion(order, lapse)
        except PermanentError as error:
            return _Failure(order.sender, error)
        return completion or self._ending_by_reason(lapse, order.sender, order.expires_at)

    async def _completion(self, order: Order, lapse: Lapse) -> CompletedData | None:
        """What to say of a job whose audio stands in the store, as if it had just been found."""
        try:
            plan = self.planner.plan(order.job)
        except PermanentError:
            if lapse.has_expired:
                # A daemon asks for the time before it plans.
                return None
            raise
        facts = await lookup(plan, self.objects)
        if facts is None or (lapse.has_expired and facts.job_id != order.job_id):
            # A job that waited too long may never have been looked at: another's audio proves
            # nothing then.
            return None
        presigned_url = await link_to(plan.object_name, self.objects, self.presign_expires_s)
        stopwatch = Stopwatch(self.monotonic)
        return completed(order, plan, facts, self.objects, presigned_url, stopwatch)

    def _ending_by_reason(
        self, lapse: Lapse, sender: Sender, expires_at: datetime | None
    ) -> _Ending:
        if lapse.has_expired and sender.job_id is not None:
            # The job's own instant may lie far ahead of the one at which the broker gave it up.
            known = (expires_at, lapse.message.expires_at, lapse.at)
            at = min((instant for instant in known if instant), default=self.now())
            return _Expiry(sender.job_id, sender, at)
        return _Failure(sender, _error_of(lapse))


def _outcome_of(ending: _Ending) -> str:
    match ending:
        case CompletedData():
            return "completed"
        case _Expiry():
            return "expired"
        case _Failure():
            return "failed"


def _error_of(lapse: Lapse) -> JobError:
    if lapse.reason == DELIVERY_LIMIT:
        return DeliveryLimitError(
            "the job was delivered too often without an end: it may kill the whole daemon, or"
            " daemons paused too often. Look at their logs before you send it again"
        )
    return InternalError(
        "the daemon met a fault of its own, and the broker gave the job up: send it again, and"
        " report the daemon's log"
    )
