"""The wait before jobs are taken again."""

import pytest

from utterd.backoff import FullJitter
from utterd.broker.hold_off import HOLD_OFFS, HoldOff
from utterd.config import QueueLimits


@pytest.fixture
def hold_off():
    return HoldOff(FullJitter(base_s=1.0, cap_s=8.0, uniform=max))


def take_and_lose(hold_off, **how) -> float:
    """A subscription that takes a job and ends; returns the wait before the next one."""
    hold_off.took()
    hold_off.ended(**({"returns_count": True} | how))
    return hold_off.delay_s()


def test_the_waits_double_up_to_a_cap(hold_off):
    """One return is chance, and costs nothing."""
    assert [take_and_lose(hold_off) for _ in range(6)] == [0, 1, 2, 4, 8, 8]


def test_a_job_that_is_done_ends_the_waits(hold_off):
    """What goes through is no flapping."""
    for _ in range(4):
        take_and_lose(hold_off)
    hold_off.acked()
    assert hold_off.delay_s() == 0
    assert take_and_lose(hold_off) == 0


def test_an_idle_subscription_costs_nothing(hold_off):
    """No job was returned, so none has lost a delivery."""
    for _ in range(4):
        hold_off.ended(returns_count=True)
    assert hold_off.delay_s() == 0


def test_returns_that_the_broker_forgives_cost_nothing(hold_off):
    """RabbitMQ 4.3 counts failures only."""
    assert [take_and_lose(hold_off, returns_count=False) for _ in range(4)] == [0] * 4


def test_a_jobs_deliveries_last_for_hours():
    """However fast the surroundings flap, and however the dice fall."""
    hold_off = HoldOff()
    waits_s = [take_and_lose(hold_off) for _ in range(QueueLimits().delivery_limit)]
    assert sum(waits_s) > 4.5 * 3600
    assert max(waits_s) <= HOLD_OFFS.cap_s
