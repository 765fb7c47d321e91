"""The line that segments wait in for a free slot."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")

# How many urgent segments may pass before one that waits in the other queue gets its turn.
URGENT_IN_A_ROW = 4


class SegmentLine(Generic[Item]):
    """Two queues: the urgent one goes first, the other is never starved."""

    def __init__(self) -> None:
        self._urgent: deque[Item] = deque()
        self._patient: deque[Item] = deque()
        self._waiting = asyncio.Semaphore(0)
        self._in_a_row = 0

    def put(self, item: Item, *, urgent: bool) -> None:
        (self._urgent if urgent else self._patient).append(item)
        self._waiting.release()

    async def get(self) -> Item:
        """The next item; a cancelled `get` takes none."""
        await self._waiting.acquire()
        patient_is_due = self._in_a_row >= URGENT_IN_A_ROW or not self._urgent
        if self._patient and patient_is_due:
            self._in_a_row = 0
            return self._patient.popleft()
        # Only those that pass somebody count.
        self._in_a_row = self._in_a_row + 1 if self._patient else 0
        return self._urgent.popleft()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._patient)
