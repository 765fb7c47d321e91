"""The line that segments wait in for a free slot."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

from utterd.engines.pace import Pace

Item = TypeVar("Item")

# How many urgent segments may pass before one that waits in the other queue gets its turn.
URGENT_IN_A_ROW = 4


class SegmentLine(Generic[Item]):
    """Two queues: the urgent one goes first, the other is never starved.

    What becomes urgent while it waits changes over, behind those that were urgent before.
    """

    def __init__(self) -> None:
        self._urgent: deque[Item] = deque()
        self._patient: deque[tuple[Item, Pace]] = deque()
        self._waiting = asyncio.Semaphore(0)
        self._in_a_row = 0

    def put(self, item: Item, pace: Pace) -> None:
        if pace.is_urgent:
            self._urgent.append(item)
        else:
            self._patient.append((item, pace))
        self._waiting.release()

    async def get(self) -> Item:
        """The next item; a cancelled `get` takes none."""
        await self._waiting.acquire()
        self._change_over()
        patient_is_due = self._in_a_row >= URGENT_IN_A_ROW or not self._urgent
        if self._patient and patient_is_due:
            self._in_a_row = 0
            return self._patient.popleft()[0]
        # Only those that pass somebody count.
        self._in_a_row = self._in_a_row + 1 if self._patient else 0
        return self._urgent.popleft()

    def _change_over(self) -> None:
        if not any(pace.is_urgent for _, pace in self._patient):
            return
        self._urgent.extend(item for item, pace in self._patient if pace.is_urgent)
        self._patient = deque(one for one in self._patient if not one[1].is_urgent)

    def __len__(self) -> int:
        return len(self._urgent) + len(self._patient)
