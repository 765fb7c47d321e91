"""Ends the work on a job before its time, and remembers why."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

MAX_REMEMBERED = 10_000
"""Cancelled jobs that may still wait in a queue; older ones are forgotten."""


class Interruption(Enum):
    """Why the work on a job ends early."""

    CANCELLED = auto()
    """Somebody called the job off."""
    HANDED_BACK = auto()
    """The daemon stops or pauses, and the job was not begun."""


@dataclass(slots=True, eq=False)
class WorkInHand:
    """One delivery's work, as those who may interrupt it see it."""

    task: asyncio.Task[None]
    since_s: float
    job_id: str | None = None
    is_begun: bool = False
    is_closed: bool = False
    interruption: Interruption | None = None

    def begin(self) -> None:
        """From here on the work is worth finishing."""
        self.is_begun = True

    def close(self) -> None:
        """From here on the delivery is being settled, and nothing may come between."""
        self.is_closed = True

    def interrupt(self, reason: Interruption) -> None:
        """End the work, unless it has ended."""
        if self.interruption is None and not self.is_closed:
            self.interruption = reason
            self.task.cancel()


class Interruptions:
    """All work in hand, and the jobs that were called off before they came."""

    def __init__(self) -> None:
        self._in_hand: set[WorkInHand] = set()
        self._cancelled: OrderedDict[str, datetime] = OrderedDict()

    @contextmanager
    def work(self) -> Iterator[WorkInHand]:
        """The current task's work can be interrupted inside this block."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("work is done in a task")
        work = WorkInHand(task, since_s=task.get_loop().time())
        self._in_hand.add(work)
        try:
            yield work
        finally:
            self._in_hand.discard(work)

    def __len__(self) -> int:
        return len(self._in_hand)

    @property
    def oldest_since_s(self) -> float | None:
        """When the oldest work in hand began, by the event loop's clock; None without any."""
        return min((work.since_s for work in self._in_hand), default=None)

    def cancel(self, job_id: str, at: datetime) -> None:
        """Call a job off: in hand, or when it comes, if it was published before `at`."""
        self._cancelled[job_id] = at
        self._cancelled.move_to_end(job_id)
        while len(self._cancelled) > MAX_REMEMBERED:
            self._cancelled.popitem(last=False)
        for work in list(self._in_hand):
            if work.job_id == job_id:
                work.interrupt(Interruption.CANCELLED)

    def is_cancelled(self, job_id: str, published_at: datetime | None) -> bool:
        """Whether a job that just came had been called off."""
        at = self._cancelled.get(job_id)
        return at is not None and (published_at is None or published_at <= at)

    def hand_back(self) -> int:
        """Interrupt all work that has not begun to speak; returns how much that was."""
        waiting = [work for work in self._in_hand if not work.is_begun]
        for work in waiting:
            work.interrupt(Interruption.HANDED_BACK)
        return len(waiting)
