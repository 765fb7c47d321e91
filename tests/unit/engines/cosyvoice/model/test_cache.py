"""The cache as a block of memory; that the model reads it right is tested with the model."""

import numpy as np
import pytest
from numpy.typing import NDArray

from utterd.engines.cosyvoice.model.cache import KeyValueCache
from utterd.errors import EngineFailedError

LAYERS, HEADS, WIDTH = 2, 3, 4


def make(rows: int = 3, capacity: int = 300) -> KeyValueCache:
    return KeyValueCache(layers=LAYERS, rows=rows, heads=HEADS, capacity=capacity, head_width=WIDTH)


def sequence(length: int, value: float) -> list[NDArray[np.float32]]:
    """Keys and values of all layers that hold `value` and count their positions."""
    positions = value + np.arange(length, dtype=np.float32) / 1000
    part = np.broadcast_to(positions[None, None, :, None], (1, HEADS, length, WIDTH))
    return [part] * (2 * LAYERS)


def held(cache: KeyValueCache, row: int) -> list[float]:
    """The positions of one row's last layer, from its start to the clock."""
    slot = cache.rows.index(row)
    assert (cache.keys(LAYERS - 1) == cache.values(LAYERS - 1)).all()
    used = cache.keys(LAYERS - 1)[slot, HEADS - 1, cache.starts[slot] : cache.clock, 0]
    return [float(number) for number in used]


def expected(length: int, value: float) -> list[float]:
    return [float(number) for number in sequence(length, value)[0][0, 0, :, 0]]


def test_a_longer_sequence_moves_the_others():
    """All sequences end at the clock, also when a longer one joins."""
    cache = make()
    cache.join(0, sequence(3, 1.0))
    cache.join(2, sequence(7, 2.0))

    assert cache.clock == 7
    assert held(cache, 0) == expected(3, 1.0)
    assert held(cache, 2) == expected(7, 2.0)


def test_the_last_takes_the_place_of_one_that_leaves():
    """Rows in use stay together in memory, with their contents."""
    cache = make()
    for row, (length, value) in enumerate([(5, 1.0), (2, 2.0), (4, 3.0)]):
        cache.join(row, sequence(length, value))

    cache.leave(0)

    assert set(cache.rows) == {1, 2}
    assert held(cache, 1) == expected(2, 2.0)
    assert held(cache, 2) == expected(4, 3.0)


def test_unused_columns_are_given_up():
    """When the longest has left, the others move to the front and the clock with them."""
    cache = make()
    cache.join(0, sequence(200, 1.0))
    cache.join(1, sequence(10, 2.0))

    cache.leave(0)

    assert cache.clock == 10
    assert held(cache, 1) == expected(10, 2.0)


def test_an_end_at_the_capacity_makes_room():
    """At the capacity, padding is given up before a sequence is refused."""
    cache = make(capacity=20)
    cache.join(0, sequence(20, 1.0))
    cache.join(1, sequence(15, 2.0))
    cache.leave(0)

    cache.advance()

    assert cache.clock == 16
    assert cache.starts.tolist() == [0]


def test_no_room_is_told():
    """A sequence that fills the capacity can't grow, and one beyond it can't join."""
    cache = make(capacity=4)
    cache.join(0, sequence(4, 1.0))

    with pytest.raises(EngineFailedError, match="more than 4 positions"):
        cache.advance()
    with pytest.raises(EngineFailedError, match="more than 4 positions"):
        cache.join(1, sequence(5, 1.0))


@pytest.mark.parametrize("row", [-1, 0, 3])
def test_a_row_joins_once(row: int):
    """A row that is in use or does not exist is a mistake of the caller's."""
    cache = make()
    cache.join(0, sequence(1, 1.0))

    with pytest.raises(ValueError, match="in use or does not exist"):
        cache.join(row, sequence(1, 1.0))
