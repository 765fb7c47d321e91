"""A time limit that runs only while slots work."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SlotTime:
    """Ends a job when slots have worked on it for too long.

    The wait for a slot is not the job's fault, and costs it nothing. While several slots work on
    the job, time runs once.

    Args:
        limit_s: for all of the job's segments together.
        timeout: the block that is ended; it has no deadline of its own.
        now: the event loop's clock.
    """

    def __init__(self, limit_s: float, timeout: asyncio.Timeout, now: Callable[[], float]) -> None:
        self._left_s = limit_s
        self._timeout = timeout
        self._now = now
        self._busy = 0
        self._busy_since = 0.0

    @contextmanager
    def segment(self, on_start: Callable[[], None] | None) -> Iterator[Callable[[], None]]:
        """One segment; gives what is to be called when a slot takes it.

        Args:
            on_start: called then, too.
        """
        is_begun = False

        def begin() -> None:
            nonlocal is_begun
            if not is_begun:
                is_begun = True
                self._begin()
            if on_start is not None:
                on_start()

        try:
            yield begin
        finally:
            if is_begun:
                self._end()

    def _begin(self) -> None:
        self._busy += 1
        if self._busy == 1 and not self._timeout.expired():
            self._busy_since = self._now()
            self._timeout.reschedule(self._busy_since + self._left_s)

    def _end(self) -> None:
        self._busy -= 1
        if self._busy == 0 and not self._timeout.expired():
            self._left_s -= self._now() - self._busy_since
            self._timeout.reschedule(None)
