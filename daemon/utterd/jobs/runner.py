"""A delivery's way: decode, plan, lookup, speak, finish, store, announce, settle."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog

from utterd.broker.message import Delivery
from utterd.config import Lane
from utterd.engines.pace import Pace
from utterd.errors import (
    DeadlineExceededError,
    EnvironmentFaultError,
    InternalError,
    JobError,
    PermanentError,
)
from utterd.interruptions import Interruption, Interruptions, WorkInHand
from utterd.jobs.decode import UndecodableError, decode, sender_of
from utterd.jobs.finish import finish
from utterd.jobs.lookup import lookup
from utterd.jobs.order import Order, traced
from utterd.jobs.outcome import cancelled, completed, expired
from utterd.jobs.plan import Plan
from utterd.jobs.planning import JobPlanner
from utterd.jobs.progress import Progress
from utterd.jobs.settle import Settler
from utterd.jobs.singleflight import SingleFlight
from utterd.jobs.speak import Speaker, Speech, speak
from utterd.jobs.stopwatch import Stopwatch
from utterd.jobs.store import Upload, link_to, store
from utterd.offload import Offload
from utterd.ops.metrics import Metrics
from utterd.ops.tracing import Tracing
from utterd.store.audio_object import AudioFacts
from utterd.store.protocol import ObjectStore
from utterd.store.spool import Spool
from utterd_schemas.events import CompletedData, EventData
from utterd_schemas.job import Job

log = structlog.get_logger(__name__)

Settle = Callable[[], Awaitable[None]]

# Writing out the numbers of a longer text takes longer than the loop may stand still.
_PLANNED_AT_ONCE_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Takes deliveries from decode to settle.

    Attributes:
        planner: decides what a job means.
        speaker: the engine.
        objects: where audio lies.
        settler: ends the work on a delivery.
        progress: tells of what is not the end.
        flights: shares the work on equal keys.
        encoding: threads for what is slow.
        now: the clock; instants have a zone.
        monotonic: the clock for durations, in seconds.
        max_message_bytes: the largest body.
        job_timeout_s: how long slots may work on a job.
        work_timeout_s: how long a delivery may stay in hand before it is settled.
        spool: keeps finished audio that the store could not take.
        interruptions: ends work early.
        metrics: counts what happens.
        tracing: opens a span for each job and each of its steps.
        presign_expires_s: lifetime of links in events; None for no links.
    """

    planner: JobPlanner
    speaker: Speaker
    objects: ObjectStore
    settler: Settler
    progress: Progress
    flights: SingleFlight[AudioFacts]
    encoding: Offload
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    max_message_bytes: int
    job_timeout_s: float
    work_timeout_s: float
    spool: Spool
    interruptions: Interruptions
    metrics: Metrics
    tracing: Tracing
    presign_expires_s: int | None = None

    async def run(self, delivery: Delivery) -> None:
        """Work on one delivery and settle it, whatever happens on the way."""
        try:
            with self.interruptions.work() as work, ExitStack() as spans:
                await self._run(delivery, work, spans)
        except Exception as bug:
            log.exception("delivery_met_a_bug", error=type(bug).__name__)
            await self.settler.reject(delivery)

    async def _run(self, delivery: Delivery, work: WorkInHand, spans: ExitStack) -> None:
        stopwatch = Stopwatch(self.monotonic, self.tracing.step)
        settle: Settle
        try:
            order = decode(delivery, max_bytes=self.max_message_bytes, now=self.now())
        except UndecodableError as refusal:
            settle = partial(self.settler.give_up, delivery, refusal.sender, refusal.error)
        except Exception as bug:
            log.exception("decode_met_a_bug", error=type(bug).__name__)
            sender = sender_of(delivery.message)
            settle = partial(self.settler.give_up, delivery, sender, _as_job_error(bug))
        else:
            work.job_id = order.job_id
            structlog.contextvars.bind_contextvars(
                job_id=order.job_id,
                lane=str(order.lane),
                attempt=order.sender.history.attempt,
            )
            self.metrics.job_taken(order.lane, order.queue_s)
            spans.enter_context(self.tracing.job(traced(delivery, order)))
            settle = await self._work_to_settlement(delivery, order, stopwatch, work)
        work.close()
        if delivery.is_lost and delivery.message.expiration_s is not None:
            # Back in its lane, its time may have run out at once, and been told of. Whoever gets it
            # next, from there or from the lapsed, finds the audio.
            log.warning("job_left_to_the_broker")
            return
        await settle()

    async def _work_to_settlement(
        self, delivery: Delivery, order: Order, stopwatch: Stopwatch, work: WorkInHand
    ) -> Settle:
        """Work on an order; returns how its delivery is to be settled."""
        limit = asyncio.timeout(self.work_timeout_s)
        try:
            async with limit:
                event = await self._work(order, stopwatch, work)
        except TimeoutError as end:
            return self._after_a_timeout(delivery, order, work, None if limit.expired() else end)
        except EnvironmentFaultError as fault:
            log.warning("job_handed_back", code=str(fault.code))
            return partial(self.settler.hand_back, delivery)
        except JobError as error:
            return partial(self.settler.try_again_or_give_up, delivery, order, error)
        except asyncio.CancelledError as end:
            return self._after_a_cancel(delivery, order, work, end)
        except Exception as bug:  # noqa: BLE001 - logged there
            return self._after_a_bug(delivery, order, bug)
        return partial(self.settler.conclude, delivery, order, event)

    def _after_a_cancel(
        self, delivery: Delivery, order: Order, work: WorkInHand, end: asyncio.CancelledError
    ) -> Settle:
        if not work.task.cancelling():
            # Not this task was cancelled, but something that it waited for.
            return self._after_a_bug(delivery, order, end)
        if work.interruption is None or work.task.uncancel():
            # Somebody wants the task itself to end.
            raise end
        if work.interruption is Interruption.HANDED_BACK:
            return partial(self.settler.hand_back, delivery)
        return partial(self._call_off, delivery, order)

    def _after_a_timeout(
        self, delivery: Delivery, order: Order, work: WorkInHand, bug: TimeoutError | None
    ) -> Settle:
        """Before the broker takes the delivery away, and every other one of its channel with it."""
        if bug is not None:
            return self._after_a_bug(delivery, order, bug)
        if not work.is_begun:
            # A long line is not the job's fault; another daemon may have a shorter one.
            log.warning("job_handed_back", reason=f"no free slot in {self.work_timeout_s:g} s")
            return partial(self.settler.hand_back, delivery)
        error = DeadlineExceededError(
            f"the job was begun, and not finished within {self.work_timeout_s:g} s: start more"
            " daemons, send less text in one job, or raise broker.limits.consumer_timeout_s"
        )
        return partial(self.settler.try_again_or_give_up, delivery, order, error)

    def _after_a_bug(self, delivery: Delivery, order: Order, bug: BaseException) -> Settle:
        log.error("job_met_a_bug", error=type(bug).__name__, exc_info=bug)
        return partial(self.settler.try_again_or_give_up, delivery, order, _as_job_error(bug))

    async def _call_off(self, delivery: Delivery, order: Order) -> None:
        try:
            event = await self._unless_done(cancelled(order), order)
        except EnvironmentFaultError:
            # What the store holds can't be found out now, and somebody waits for the answer.
            event = cancelled(order)
        await self.settler.conclude(delivery, order, event)

    async def _unless_done(self, end: EventData, order: Order) -> EventData:
        """How a job ends that is not to be worked on: as it did before, if it was completed.

        Its event may be out while the ack was lost, and a job has one end. Then the audio that was
        made for it stands in the store.
        """
        try:
            plan = await self._plan(order.job)
        except PermanentError:
            return end
        facts = await lookup(plan, self.objects)
        if facts is None or facts.job_id != order.job_id:
            return end
        return await self._completion(plan, order, facts, Stopwatch(self.monotonic))

    async def _work(self, order: Order, stopwatch: Stopwatch, work: WorkInHand) -> EventData:
        """From an order to what the terminal event says."""
        if self.interruptions.is_cancelled(order.job_id, order.published_at):
            return await self._unless_done(cancelled(order), order)
        if order.expires_at is None:
            return await self._audio(order, stopwatch, work)
        left_s = (order.expires_at - self.now()).total_seconds()
        limit = asyncio.timeout(left_s)
        try:
            if left_s > 0:
                async with limit:
                    return await self._audio(order, stopwatch, work)
        except TimeoutError:
            if not limit.expired():
                raise
        log.info("job_expired")
        return await self._unless_done(expired(order, order.expires_at), order)

    async def _audio(self, order: Order, stopwatch: Stopwatch, work: WorkInHand) -> EventData:
        with stopwatch.step("plan"):
            plan = await self._plan(order.job)
        structlog.contextvars.bind_contextvars(key=plan.key)
        facts = await self._share(plan, order, stopwatch, work)
        return await self._completion(plan, order, facts, stopwatch)

    async def _completion(
        self, plan: Plan, order: Order, facts: AudioFacts, stopwatch: Stopwatch
    ) -> CompletedData:
        presigned_url = await link_to(plan.object_name, self.objects, self.presign_expires_s)
        event = completed(order, plan, facts, self.objects, presigned_url, stopwatch)
        log.info(
            "job_completed",
            cached=event.cached,
            duration_s=round(facts.duration_s, 3),
            total_s=round(event.timings.total_s, 4),
        )
        return event

    async def _plan(self, job: Job) -> Plan:
        script = job.text or job.ssml or ""
        if len(script) <= _PLANNED_AT_ONCE_CHARS:
            return self.planner.plan(job)
        return await self.encoding.run(self.planner.plan, job)

    async def _share(
        self, plan: Plan, order: Order, stopwatch: Stopwatch, work: WorkInHand
    ) -> AudioFacts:
        """The audio of a plan, from the work of whoever is at it already."""
        is_ours = False

        async def obtain(pace: Pace) -> AudioFacts:
            nonlocal is_ours
            is_ours = True
            return await self._obtain(plan, order, stopwatch, work, pace)

        is_urgent = order.lane is Lane.INTERACTIVE
        while True:
            facts = await self.flights.run(plan.object_name, obtain, urgent=is_urgent)
            if is_ours or plan.marks_name is None:
                return facts
            # Who shared the work of a job that wants no marks has to have them made.
            if (whole := await lookup(plan, self.objects)) is not None:
                return whole

    async def _obtain(
        self, plan: Plan, order: Order, stopwatch: Stopwatch, work: WorkInHand, pace: Pace
    ) -> AudioFacts:
        """The audio of a plan: from the store, or made and stored now."""
        with stopwatch.step("lookup"):
            facts = await lookup(plan, self.objects)
        if facts is not None:
            return facts
        with stopwatch.step("speak"):
            speech = await self._speak(plan, order, work, pace)
        with stopwatch.step("encode"):
            finished = await self.encoding.run(finish, speech, plan)
        with stopwatch.step("store"):
            upload = Upload(finished, speech, plan, order.job_id)
            try:
                return await store(upload, self.objects)
            except EnvironmentFaultError:
                await upload.keep_in(self.spool)
                raise

    async def _speak(self, plan: Plan, order: Order, work: WorkInHand, pace: Pace) -> Speech:
        try:
            # The event's confirm is awaited beside the speech, not before it.
            async with asyncio.TaskGroup() as beside:
                beside.create_task(self.progress.started(plan, order, work), name="started")
                return await speak(
                    plan,
                    self.speaker,
                    pace=pace,
                    # Whether it was this job that killed its worker shows when it has no company.
                    alone=order.sender.history.worker_deaths > 0,
                    timeout_s=self.job_timeout_s,
                    on_start=work.begin,
                    on_segment=self.progress.of_segments(plan, order, work),
                )
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None


def _as_job_error(bug: BaseException) -> JobError:
    return InternalError(
        f"utterd met a fault of its own ({type(bug).__name__}): send the job again, and report"
        " the daemon's log"
    )
