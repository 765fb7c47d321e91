"""A delivery's way: decode, plan, lookup, speak, finish, store, announce, settle."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import structlog

from utterd.backoff import FullJitter
from utterd.broker.event import EventSink
from utterd.broker.message import Delivery
from utterd.config import Lane
from utterd.errors import EnvironmentFaultError, InternalError, JobError
from utterd.jobs.announce import Announcer
from utterd.jobs.decode import UndecodableError, decode, sender_of
from utterd.jobs.finish import finish
from utterd.jobs.lookup import lookup
from utterd.jobs.order import Order, Sender
from utterd.jobs.outcome import completed, expired, failed
from utterd.jobs.plan import Plan, Planner
from utterd.jobs.singleflight import SingleFlight
from utterd.jobs.speak import Speaker, speak
from utterd.jobs.stopwatch import Stopwatch
from utterd.jobs.store import store
from utterd.offload import Offload
from utterd.store.audio_object import AudioFacts
from utterd.store.protocol import ObjectStore
from utterd_schemas.events import EventData, ProgressData, StartedData

log = structlog.get_logger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Takes deliveries from decode to settle.

    Attributes:
        planner: decides what a job means.
        speaker: the engine.
        objects: where audio lies.
        sink: where events and dead jobs go.
        announcer: makes the events.
        flights: shares the work on equal keys.
        encoding: threads for what is slow.
        now: the clock; instants have a zone.
        monotonic: the clock for durations, in seconds.
        max_message_bytes: the largest body.
        job_timeout_s: for all of a job's synthesis.
        progress: whether finished segments are announced.
        presign_expires_s: lifetime of links in events; None for no links.
        patience: waits between attempts while the store is down.
    """

    planner: Planner
    speaker: Speaker
    objects: ObjectStore
    sink: EventSink
    announcer: Announcer
    flights: SingleFlight[AudioFacts]
    encoding: Offload
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    max_message_bytes: int
    job_timeout_s: float
    progress: bool = False
    presign_expires_s: int | None = None
    patience: FullJitter = field(default_factory=lambda: FullJitter(base_s=0.5, cap_s=30.0))

    async def run(self, delivery: Delivery) -> None:
        """Work on one delivery and settle it, whatever happens on the way."""
        try:
            await self._run(delivery)
        except Exception as bug:
            log.exception("delivery_met_a_bug", error=type(bug).__name__)
            await delivery.reject()

    async def _run(self, delivery: Delivery) -> None:
        stopwatch = Stopwatch(self.monotonic)
        try:
            order = decode(delivery, max_bytes=self.max_message_bytes, now=self.now())
        except UndecodableError as refusal:
            await self._give_up(delivery, refusal.sender, refusal.error)
            return
        except Exception as bug:
            log.exception("decode_met_a_bug", error=type(bug).__name__)
            await self._give_up(delivery, sender_of(delivery.message), _as_job_error(bug))
            return
        with structlog.contextvars.bound_contextvars(job_id=order.job_id, lane=str(order.lane)):
            try:
                event = await self._work(order, stopwatch)
            except JobError as error:
                await self._give_up(delivery, order.sender, error)
            except Exception as bug:
                log.exception("job_met_a_bug", error=type(bug).__name__)
                await self._give_up(delivery, order.sender, _as_job_error(bug))
            else:
                await self.announcer.announce(event, order.sender)
                await delivery.ack()

    async def _work(self, order: Order, stopwatch: Stopwatch) -> EventData:
        """From an order to what the terminal event says."""
        if order.expires_at is not None and order.expires_at <= self.now():
            log.info("job_expired")
            return expired(order, order.expires_at)
        with stopwatch.step("plan"):
            plan = self.planner.plan(order.job)
        # Audio with marks and audio without are two wishes, though they share an object.
        facts = await self.flights.run(
            plan.marks_name or plan.object_name, lambda: self._obtain(plan, order, stopwatch)
        )
        presigned_url = await self._outlast_outages(lambda: self._presign(plan))
        event = completed(order, plan, facts, self.objects, presigned_url, stopwatch)
        log.info(
            "job_completed",
            key=plan.key,
            cached=event.cached,
            duration_s=round(facts.duration_s, 3),
            total_s=round(event.timings.total_s, 4),
        )
        return event

    async def _obtain(self, plan: Plan, order: Order, stopwatch: Stopwatch) -> AudioFacts:
        """The audio of a plan: from the store, or made and stored now."""
        with stopwatch.step("lookup"):
            facts = await self._outlast_outages(lambda: lookup(plan, self.objects))
        if facts is not None:
            return facts
        await self._announce_start(plan, order)
        with stopwatch.step("speak"):
            speech = await speak(
                plan,
                self.speaker,
                urgent=order.lane is Lane.INTERACTIVE,
                timeout_s=self.job_timeout_s,
                on_segment=self._progress_of(plan, order),
            )
        with stopwatch.step("encode"):
            finished = await self.encoding.run(finish, speech, plan)
        with stopwatch.step("store"):
            return await self._outlast_outages(
                lambda: store(finished, speech, plan, order.job_id, self.objects)
            )

    async def _presign(self, plan: Plan) -> str | None:
        if self.presign_expires_s is None:
            return None
        return await self.objects.presign(plan.object_name, self.presign_expires_s)

    async def _give_up(self, delivery: Delivery, sender: Sender, error: JobError) -> None:
        """A `failed` event, a copy among the dead, and only then an ack."""
        message = delivery.message
        log.warning(
            "job_failed",
            job_id=sender.job_id,
            code=str(error.code),
            attempt=sender.attempt,
            body_bytes=len(message.body),
        )
        if sender.job_id is not None:
            await self.announcer.announce(failed(sender.job_id, sender, error), sender)
        await self.sink.bury(message, error)
        await delivery.ack()

    async def _announce_start(self, plan: Plan, order: Order) -> None:
        await self.announcer.announce(
            StartedData(
                job_id=order.job_id,
                labels=dict(order.sender.labels),
                key=plan.key,
                voice=plan.full_voice,
                segments=len(plan.segments),
                attempt=order.sender.attempt,
            ),
            order.sender,
            sequence=order.sender.attempt,
        )

    def _progress_of(self, plan: Plan, order: Order) -> Callable[[int], Awaitable[None]] | None:
        if not self.progress:
            return None

        async def announce(segments_done: int) -> None:
            await self.announcer.announce(
                ProgressData(
                    job_id=order.job_id,
                    labels=dict(order.sender.labels),
                    key=plan.key,
                    segments=len(plan.segments),
                    segments_done=segments_done,
                ),
                order.sender,
                sequence=segments_done,
            )

        return announce

    async def _outlast_outages(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Repeat a call to the store while the store is down: that is not the job's fault."""
        failures = 0
        while True:
            try:
                return await call()
            except EnvironmentFaultError as fault:
                failures += 1
                log.warning("store_unavailable", failures=failures, reason=fault.message)
                await self.patience.wait(failures)


def _as_job_error(bug: Exception) -> JobError:
    return InternalError(
        f"utterd met a fault of its own ({type(bug).__name__}): send the job again, and report"
        " the daemon's log"
    )
