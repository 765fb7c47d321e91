"""Watches the daemon's parts, and tells how the whole fares."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from utterd.broker.hold_off import HoldOff
from utterd.environment import Environment
from utterd.interruptions import Interruptions
from utterd.ops.metrics import Metrics
from utterd.ops.status import State, Status, sentence_of

log = structlog.get_logger(__name__)

QUEUE_INTERVAL_S = 10.0
"""Between two looks at the queues."""

PROGRESS_INTERVAL_S = 5.0
"""Between two looks whether there is any."""

QUEUE_RETRY_S = 1.0

CHECKED_PARTS = ("engine", "store", "publishing", "topology")
"""Parts of the environment that readiness names, also while nothing is wrong with them."""


class Slots(Protocol):
    """What the engine's host tells of itself."""

    @property
    def slots(self) -> int: ...

    @property
    def busy(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def pids(self) -> tuple[int, ...]: ...


QueueDepths = Callable[[Iterable[str]], Awaitable[Mapping[str, int]]]


@dataclass(slots=True, kw_only=True, eq=False)
class Monitor:
    """Reads the parts; changes nothing.

    Attributes:
        slots: the engine's host.
        environment: what around the daemon is broken.
        interruptions: the work in hand.
        stop: set when the daemon has been told to stop.
        broker: its host and port, for people.
        lanes: names of the queues that jobs wait in.
        max_work_s: work in hand for longer than this has hung, unless something around the
            daemon is broken that it waits for.
        hold_off: of the consumer.
        consuming: set while the consumer takes jobs.
        is_loaded: whether the engine has loaded its model.
        queued: ready messages by queue, as of the last look.
    """

    slots: Slots
    environment: Environment
    interruptions: Interruptions
    stop: asyncio.Event
    broker: str
    lanes: tuple[str, ...]
    max_work_s: float
    hold_off: HoldOff
    consuming: asyncio.Event = field(default_factory=asyncio.Event)
    is_loaded: bool = False
    queued: Mapping[str, int] = field(default_factory=dict)

    @property
    def state(self) -> State:
        if self.stop.is_set():
            return State.DRAINING
        if not self.is_loaded:
            return State.STARTING
        if self.consuming.is_set():
            return State.CONSUMING
        if self.environment.faults:
            return State.PAUSED
        return State.HOLDING_OFF if self.hold_off.is_on else State.CONNECTING

    def status(self) -> Status:
        """How the daemon fares now."""
        state, faults, slots = self.state, self.environment.faults, self.slots
        return Status(
            state=state,
            sentence=sentence_of(
                state,
                slots=slots.slots,
                busy=slots.busy,
                in_hand=len(self.interruptions),
                queued=self._backlog,
                faults=faults,
                broker=self.broker,
            ),
            slots=slots.slots,
            busy=slots.busy,
            waiting=slots.waiting,
            in_hand=len(self.interruptions),
            queued=self.queued,
            faults=faults,
            workers=len(slots.pids),
            checks={
                "consuming": state is State.CONSUMING,
                **{part: part not in faults for part in CHECKED_PARTS},
                "workers": bool(slots.pids),
            },
        )

    @property
    def _backlog(self) -> int | None:
        counts = [self.queued[lane] for lane in self.lanes if lane in self.queued]
        return sum(counts) if counts else None

    def is_alive(self) -> bool:
        """Whether the daemon makes progress; a False calls for a restart.

        Whoever hears a True has also learned that the event loop turns.
        """
        since_s = self.interruptions.oldest_since_s
        if since_s is None or self.environment.faults:
            return True
        return asyncio.get_running_loop().time() - since_s <= self.max_work_s

    async def watch_progress(self) -> None:
        """Log when the daemon ceases to make progress, until cancelled.

        Whoever ends it then, the watchdog or a liveness probe, leaves no reason in the log.
        """
        was_alive = True
        while True:
            is_alive = self.is_alive()
            if was_alive and not is_alive:
                log.error(
                    "no_progress",
                    in_hand=len(self.interruptions),
                    longer_than_s=self.max_work_s,
                    busy=self.slots.busy,
                    waiting=self.slots.waiting,
                )
            was_alive = is_alive
            await asyncio.sleep(PROGRESS_INTERVAL_S)

    async def watch_queues(
        self, look: QueueDepths, queues: tuple[str, ...], metrics: Metrics
    ) -> None:
        """Ask the broker for the queues' depths again and again, until cancelled.

        Args:
            look: asks the broker.
            queues: their names.
            metrics: told each depth.
        """
        while True:
            seen = await look(queues)
            for queue, messages in seen.items():
                metrics.queue_seen(queue, messages)
            self.queued = seen
            await asyncio.sleep(QUEUE_INTERVAL_S if seen else QUEUE_RETRY_S)
