"""Shares the cores between the language model's thread and the stages after it."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from utterd.engines.protocol import CancelToken

# A token tells nobody that it is cancelled, so it has to be asked.
_CANCEL_CHECK_INTERVAL_S = 0.05

Result = TypeVar("Result")


class Cores:
    """Lets as many threads work as there are cores, first come, first served.

    While the language model decodes or is about to, the others have a core less, but at least one.
    When they would rather have it, is for `pace.py` to say.

    Args:
        count: cores that may be kept busy.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._changed = threading.Condition()
        self._is_decoding = False
        self._working = 0
        self._line: deque[object] = deque()
        self._helpers = ThreadPoolExecutor(count, thread_name_prefix="beside")

    def claim(self, timeout_s: float) -> bool:
        """Keep a core for the language model until `release`; whether one is free within the time.

        A core that becomes free later is not given to others, so that the next claim finds it.
        """
        if self._is_decoding and self._working < self._count:
            return True
        with self._changed:
            self._is_decoding = True
            return self._changed.wait_for(lambda: self._working < self._count, timeout_s)

    def release(self) -> None:
        """Let the others have the language model's core."""
        if self._is_decoding:
            with self._changed:
                self._is_decoding = False
                self._changed.notify_all()

    def queued(self) -> int:
        """How many threads wait for a core."""
        return len(self._line)

    def are_free(self) -> bool:
        """Whether nobody but the language model works or wants to."""
        return not self._working and not self._line

    @contextmanager
    def one(self, cancel: CancelToken) -> Iterator[None]:
        """Work on a core for the length of the block.

        Raises:
            CancelledByCallerError: while it waits for one.
        """
        self._take(cancel)
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def both(
        self, first: Callable[[], Result], second: Callable[[], Result]
    ) -> tuple[Result, Result]:
        """Run two things, side by side where a core is free, for a thread that has one already."""
        if not self._take_free():
            return first(), second()
        beside = self._helpers.submit(self._give_back_after, second)
        try:
            return first(), beside.result()
        finally:
            # Also when the first fails: it may work on what the second reads.
            beside.exception()

    def close(self) -> None:
        """End the helping threads."""
        self._helpers.shutdown()

    def _take_free(self) -> bool:
        """Take a core that nobody waits for."""
        with self._changed:
            is_free = not self._line and self._working < self._allowed()
            self._working += is_free
            return is_free

    def _give_back_after(self, work: Callable[[], Result]) -> Result:
        try:
            return work()
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    def _take(self, cancel: CancelToken) -> None:
        ticket = object()
        with self._changed:
            self._line.append(ticket)
            try:
                while self._line[0] is not ticket or self._working >= self._allowed():
                    cancel.raise_if_cancelled()
                    self._changed.wait(_CANCEL_CHECK_INTERVAL_S)
                self._working += 1
            finally:
                self._line.remove(ticket)
                self._changed.notify_all()

    def _allowed(self) -> int:
        return max(1, self._count - self._is_decoding)
