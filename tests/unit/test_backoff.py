"""Waiting between attempts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.backoff import FullJitter


def highest(low: float, high: float) -> float:
    return max(low, high)


@pytest.mark.parametrize(("failures", "ceiling_s"), [(1, 0.5), (2, 1.0), (3, 2.0), (9, 30.0)])
def test_the_ceiling_doubles_up_to_the_cap(failures: int, ceiling_s: float):
    """Each failure doubles the longest wait, until the cap."""
    assert FullJitter(base_s=0.5, cap_s=30.0, uniform=highest).delay_s(failures) == ceiling_s


def test_the_wait_is_drawn_from_nothing_to_the_ceiling():
    """Full jitter: many clients that failed together come back apart."""
    drawn: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    assert FullJitter(base_s=0.5, cap_s=30.0, uniform=draw).delay_s(2) == 0.0
    assert drawn == [(0.0, 1.0)]


@given(
    st.integers(1, 10**9),
    st.floats(1e-3, 60, allow_nan=False),
    st.floats(1e-3, 3600, allow_nan=False),
)
def test_no_wait_leaves_its_bounds(failures: int, base_s: float, cap_s: float):
    """Also after a year of failures the wait is between nothing and the cap."""
    assert 0.0 <= FullJitter(base_s=base_s, cap_s=cap_s).delay_s(failures) <= cap_s


async def test_waits_with_the_given_clock():
    """`wait` sleeps for the delay, by whatever sleeps in this program."""
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    await FullJitter(base_s=2.0, cap_s=30.0, uniform=highest, sleep=sleep).wait(3)
    assert slept == [8.0]
