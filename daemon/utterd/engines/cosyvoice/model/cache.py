"""Keys and values of several sequences that are decoded side by side.

All sequences end at the same place, the clock: each is padded on its left. Positions of this model
are relative, so where a sequence stands changes nothing for it, and at one step all of them need
the same rows of the position table.
"""

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utterd.errors import EngineFailedError

CacheNumber = np.float32 | np.int8

# Columns that no sequence uses any more cost every step some time, and moving the others costs
# some once.
_SLACK = 128


class KeyValueCache:
    """A block of memory of fixed size; not safe to use from several threads.

    Args:
        layers: of the model.
        rows: how many sequences fit.
        heads: attention heads.
        capacity: the longest sequence, prompt and generated tokens together.
        head_width: channels of a head.
        dtype: of keys and values.

    Attributes:
        clock: how many positions the longest sequence may fill so far.
    """

    def __init__(
        self,
        *,
        layers: int,
        rows: int,
        heads: int,
        capacity: int,
        head_width: int,
        dtype: type[CacheNumber] = np.float32,
    ) -> None:
        # Padding is read and then masked, so it must be finite.
        self._memory = _lazy_zeros((layers, 2, rows, heads, capacity, head_width), dtype)
        self._rows: list[int] = []
        self._starts: list[int] = []
        self.clock = 0

    @property
    def rows(self) -> Sequence[int]:
        """The rows in use, in the order in which their sequences lie in memory."""
        return tuple(self._rows)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each of `rows` begins; what is left of it is padding."""
        return np.array(self._starts, np.int64)

    @property
    def capacity(self) -> int:
        capacity: int = self._memory.shape[4]
        return capacity

    def keys(self, layer: int) -> NDArray[CacheNumber]:
        """Of the rows in use: (rows, heads, capacity, head width), contiguous."""
        return self._memory[layer, 0, : len(self._rows)]

    def values(self, layer: int) -> NDArray[CacheNumber]:
        """As `keys`."""
        return self._memory[layer, 1, : len(self._rows)]

    def join(self, row: int, keys_values: Sequence[NDArray[CacheNumber]]) -> None:
        """Add a sequence so that it ends at the clock.

        Args:
            row: the caller's name for it, from 0 to below the number of rows, not in use.
            keys_values: keys and values of each layer in turn, (1, heads, length, head width).

        Raises:
            ValueError: the row is in use, or there is no such row.
            EngineFailedError: it is longer than the capacity.
        """
        length = keys_values[0].shape[2]
        self.check_fits(length)
        if row in self._rows or not 0 <= row < self._memory.shape[2]:
            raise ValueError(f"row {row} is in use or does not exist")
        if not self._rows:
            self.clock = 0
        if length > self.clock:
            self._move(length - self.clock)
        slot = len(self._rows)
        for number, part in enumerate(keys_values):
            layer, kind = divmod(number, 2)
            self._memory[layer, kind, slot, :, self.clock - length : self.clock] = part[0]
        self._rows.append(row)
        self._starts.append(self.clock - length)

    def check_fits(self, length: int) -> None:
        """Raise `EngineFailedError` for a sequence that is longer than the capacity."""
        if length > self.capacity:
            raise self._too_long()

    def leave(self, row: int) -> None:
        """Forget a sequence. The last one in memory takes its place."""
        slot = self._rows.index(row)
        last = len(self._rows) - 1
        if slot != last:
            used = slice(self._starts[last], self.clock)
            for layer in self._memory:
                layer[:, slot, :, used] = layer[:, last, :, used]
            self._rows[slot], self._starts[slot] = self._rows[last], self._starts[last]
        del self._rows[last], self._starts[last]
        if self._rows and min(self._starts) >= _SLACK:
            self._move(-min(self._starts))

    def advance(self) -> None:
        """Make room for one more position of every sequence, and move the clock.

        Raises:
            EngineFailedError: the longest sequence fills the capacity.
        """
        if self.clock == self.capacity and min(self._starts) > 0:
            self._move(-min(self._starts))
        if self.clock == self.capacity:
            raise self._too_long()
        self.clock += 1

    def _move(self, distance: int) -> None:
        """Shift all sequences, and the clock with them."""
        if self._rows:
            used = slice(min(self._starts), self.clock)
            target = slice(used.start + distance, used.stop + distance)
            for part in self._memory.reshape(-1, *self._memory.shape[2:]):
                part[: len(self._rows), :, target] = part[: len(self._rows), :, used].copy()
            self._starts = [start + distance for start in self._starts]
        self.clock += distance

    def _too_long(self) -> EngineFailedError:
        return EngineFailedError(
            f"a segment and its speech need more than {self.capacity} positions: send shorter"
            " sentences"
        )


def _lazy_zeros(shape: tuple[int, ...], dtype: type[CacheNumber]) -> NDArray[Any]:
    """Zeros of which only those pages take memory that are written to.

    numpy asks for pages of 2 MiB, each of which would hold the end of many heads' sequences, so
    that the first tokens would make nearly all of it resident.
    """
    size_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, size_bytes)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype).reshape(shape)
