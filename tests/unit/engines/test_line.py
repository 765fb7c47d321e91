"""The line of segments."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from utterd.engines.line import URGENT_IN_A_ROW, SegmentLine
from utterd.engines.pace import Pace


async def drain(line: SegmentLine[str]) -> list[str]:
    return [await line.get() for _ in range(len(line))]


def filled(*, urgent: list[str], patient: list[str]) -> SegmentLine[str]:
    line: SegmentLine[str] = SegmentLine()
    for item in patient:
        line.put(item, Pace())
    for item in urgent:
        line.put(item, Pace(urgent=True))
    return line


async def test_urgent_segments_pass_patient_ones():
    """What came later but is urgent goes first."""
    assert await drain(filled(urgent=["u1", "u2"], patient=["p1"])) == ["u1", "u2", "p1"]


async def test_patient_segments_get_a_turn_among_urgent_ones():
    """Every fifth turn belongs to the other queue, so that nobody starves."""
    urgent = [f"u{number}" for number in range(9)]
    order = await drain(filled(urgent=urgent, patient=["p0", "p1"]))
    assert order == [*urgent[:4], "p0", *urgent[4:8], "p1", "u8"]


async def test_only_urgent_segments_that_pass_somebody_count():
    """A patient segment that has just come waits its turn after a run of urgent ones."""
    line = filled(urgent=[f"u{number}" for number in range(9)], patient=[])
    for _ in range(6):
        await line.get()
    line.put("p0", Pace())
    assert await drain(line) == ["u6", "u7", "u8", "p0"]


async def test_what_becomes_urgent_changes_over():
    """It keeps its order, goes behind what was urgent before it, and before the patient."""
    line: SegmentLine[str] = SegmentLine()
    hurried, patient = Pace(), Pace()
    for item, pace in (("p0", patient), ("h0", hurried), ("p1", patient), ("h1", hurried)):
        line.put(item, pace)
    line.put("u0", Pace(urgent=True))
    hurried.hurry()
    assert await drain(line) == ["u0", "h0", "h1", "p0", "p1"]


async def test_a_waiting_get_takes_what_comes():
    """An empty line waits."""
    line: SegmentLine[str] = SegmentLine()
    waiting = asyncio.create_task(line.get(), name="get")
    await asyncio.wait({waiting}, timeout=0)
    assert not waiting.done()
    line.put("late", Pace())
    assert await waiting == "late"


async def test_a_cancelled_get_takes_nothing():
    """Also when an item came in the very moment of the cancellation."""
    line: SegmentLine[str] = SegmentLine()
    waiting = asyncio.create_task(line.get(), name="get")
    await asyncio.wait({waiting}, timeout=0)
    line.put("item", Pace())
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert await line.get() == "item"


@given(st.lists(st.tuples(st.integers(0, 999), st.booleans())))
def test_every_segment_gets_its_turn_in_order(items: list[tuple[int, bool]]):
    """Nothing is lost or doubled, each queue keeps its order, no wait is too long."""
    line: SegmentLine[tuple[int, int, bool]] = SegmentLine()
    numbered = [(number, value, urgent) for number, (value, urgent) in enumerate(items)]
    for item in numbered:
        line.put(item, Pace(urgent=item[2]))

    async def all_of_them() -> list[tuple[int, int, bool]]:
        return [await line.get() for _ in numbered]

    order = asyncio.run(all_of_them())
    assert [item for item in order if item[2]] == [item for item in numbered if item[2]]
    assert [item for item in order if not item[2]] == [item for item in numbered if not item[2]]
    passed = 0
    for position, (_, _, urgent) in enumerate(order):
        somebody_waits = any(not later[2] for later in order[position:])
        passed = passed + 1 if urgent and somebody_waits else 0
        assert passed <= URGENT_IN_A_ROW
