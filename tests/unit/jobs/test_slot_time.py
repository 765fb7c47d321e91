"""A limit that runs only while slots work."""

import asyncio

import pytest

from utterd.jobs.slot_time import SlotTime


class Clock:
    """A clock that stands until it is set."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
async def limited():
    """A clock, an open block, and ten seconds for it."""
    clock = Clock()
    async with asyncio.timeout(None) as timeout:
        yield clock, timeout, SlotTime(10, timeout, clock)
        timeout.reschedule(None)


async def test_a_segment_that_waits_has_no_deadline(limited):
    """The time begins when a slot takes it, and stands still after it."""
    clock, timeout, slot_time = limited
    with slot_time.segment(None) as begin:
        clock.now_s += 100
        assert timeout.when() is None
        begin()
        assert timeout.when() == clock.now_s + 10
    assert timeout.when() is None


async def test_segments_add_up(limited):
    """What one has used is gone for the next; the wait between them is not."""
    clock, timeout, slot_time = limited
    for used_s in (3, 4):
        with slot_time.segment(None) as begin:
            begin()
            clock.now_s += used_s
        clock.now_s += 100
    with slot_time.segment(None) as begin:
        begin()
        assert timeout.when() == clock.now_s + 3


async def test_two_slots_at_once_use_time_once(limited):
    """It runs from the first begin to the last end."""
    clock, timeout, slot_time = limited
    with slot_time.segment(None) as begin_first:
        begin_first()
        clock.now_s += 2
        with slot_time.segment(None) as begin_second:
            begin_second()
            clock.now_s += 2
        assert timeout.when() == 1010
        clock.now_s += 2
    with slot_time.segment(None) as begin:
        begin()
        assert timeout.when() == clock.now_s + 4


async def test_a_segment_that_never_began_has_used_nothing(limited):
    """Its wait was all there was of it."""
    clock, timeout, slot_time = limited
    with slot_time.segment(None):
        clock.now_s += 5
    with slot_time.segment(None) as begin:
        begin()
        assert timeout.when() == clock.now_s + 10


async def test_the_begin_is_passed_on(limited):
    """Also a second time, without a second start of the time."""
    clock, timeout, slot_time = limited
    told = []
    with slot_time.segment(lambda: told.append(clock.now_s)) as begin:
        begin()
        clock.now_s += 1
        begin()
        assert timeout.when() == 1010
    assert told == [1000, 1001]
