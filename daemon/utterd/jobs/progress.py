"""Tells of a job while it is being worked on: that it began, and what is finished of it."""

from dataclasses import dataclass

import structlog

from utterd.errors import EnvironmentFaultError
from utterd.interruptions import WorkInHand
from utterd.jobs.announce import Announcer
from utterd.jobs.order import Order
from utterd.jobs.outcome import progressed, started
from utterd.jobs.plan import Plan
from utterd.jobs.speak import SegmentDone, SpokenClip
from utterd.jobs.stream import finish_segment, store_segment
from utterd.offload import Offload
from utterd.store.protocol import ObjectStore
from utterd_schemas.events import SegmentAudio

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Announces what is not the end. Says nothing of a job that was called off meanwhile.

    Attributes:
        announcer: makes the events.
        objects: where segments of their own are stored.
        encoding: threads for what is slow.
        is_always_told: whether finished segments are announced, also when the job asks for none.
        presign_expires_s: lifetime of links in events; None for no links.
    """

    announcer: Announcer
    objects: ObjectStore
    encoding: Offload
    is_always_told: bool = False
    presign_expires_s: int | None = None

    async def started(self, plan: Plan, order: Order, work: WorkInHand) -> None:
        """The engine is asked to speak."""
        if work.is_closed:
            # The job was called off, and others wait for its audio.
            return
        await self.announcer.announce(
            started(order, plan), order.sender, sequence=order.sender.history.attempt
        )

    def of_segments(self, plan: Plan, order: Order, work: WorkInHand) -> SegmentDone | None:
        """What is to be called with each segment that is done; None where nobody asked for it."""
        if not self.is_always_told and not order.job.stream:
            return None

        async def announce(spoken: SpokenClip) -> None:
            segment = None
            if order.job.stream:
                segment = await self._store_segment(spoken, plan, order)
            if work.is_closed:
                return
            await self.announcer.announce(
                progressed(order, plan, spoken.segments_done, segment),
                order.sender,
                # A segment's event is the same at each attempt, whichever is done first.
                sequence=spoken.number if order.job.stream else spoken.segments_done,
            )

        return announce

    async def _store_segment(
        self, spoken: SpokenClip, plan: Plan, order: Order
    ) -> SegmentAudio | None:
        """A segment's own object; None when it is silent, or the store is down."""
        upload = await self.encoding.run(finish_segment, spoken, plan, order.job_id)
        if upload is None:
            return None
        try:
            return await store_segment(upload, spoken.number, self.objects, self.presign_expires_s)
        except EnvironmentFaultError as fault:
            # The whole is finished all the same, and waits in the spool.
            log.warning("segment_not_stored", code=str(fault.code), number=spoken.number)
            return None
