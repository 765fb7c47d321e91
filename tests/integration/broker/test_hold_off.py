"""A flapping environment does not use up the deliveries of jobs that wait."""

import asyncio

import pytest

from utterd.backoff import FullJitter
from utterd.broker.connection import connect
from utterd.broker.hold_off import HoldOff
from utterd.broker.version import counts_nacks, version_of

pytestmark = pytest.mark.sandbox


class Waits:
    """Hold-offs that take as long as a test wants, and tell how long they would have taken."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []
        self.over = asyncio.Event()
        self.over.set()
        self.waiting = asyncio.Event()
        delays = FullJitter(base_s=1.0, cap_s=60.0, uniform=max, sleep=self._sleep)
        self.hold_off = HoldOff(delays)

    async def _sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)
        self.waiting.set()
        await self.over.wait()


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def flap(wire):
    """Breaks the environment whenever a job is taken, so often; the job goes back each time."""

    async def run(running, times: int) -> None:
        for _ in range(times):
            await running.deliveries.get()
            running.environment.report("store", "down")
            await wire.until_ready(wire.settings.queues.interactive, 1)
            running.environment.clear("store")

    return run


def until_all_is_well():
    """A handler that gives back what it gets, until it is told to do it."""
    well = asyncio.Event()

    async def handle(delivery) -> None:
        await (delivery.ack() if well.is_set() else delivery.release())

    return well, handle


async def test_each_fruitless_resume_is_held_off_for_longer(settings, wire, consuming, waits, flap):
    """Until a job is done; then the next pause is forgiven again."""
    well, handle = until_all_is_well()
    async with consuming(settings, handle, hold_off=waits.hold_off) as running:
        await wire.publish(b"1")
        await flap(running, 5)
        well.set()
        await running.deliveries.get()
        await wire.until_ready(settings.queues.interactive, 0)
        assert waits.slept_s == [1.0, 2.0, 4.0, 8.0]
        assert waits.hold_off.fruitless == 0


async def test_all_must_be_well_for_the_whole_wait(settings, wire, consuming, waits, flap):
    """A part that breaks meanwhile starts it again, and no job is touched for that."""
    well, handle = until_all_is_well()
    async with consuming(settings, handle, hold_off=waits.hold_off) as running:
        await wire.publish(b"1")
        await flap(running, 1)
        waits.over.clear()
        await flap(running, 1)
        for _ in range(3):
            await waits.waiting.wait()
            waits.waiting.clear()
            assert await wire.ready(settings.queues.interactive) == 1
            running.environment.report("store", "down again")
            running.environment.clear("store")
        well.set()
        waits.over.set()
        await running.deliveries.get()
    assert waits.slept_s == [1.0] * len(waits.slept_s)
    assert len(waits.slept_s) >= 3


async def test_a_stop_does_not_wait_for_the_end_of_it(settings, wire, consuming, waits, flap):
    """The daemon has nothing in hand by then."""
    _, handle = until_all_is_well()
    async with consuming(settings, handle, hold_off=waits.hold_off) as running:
        await wire.publish(b"1")
        waits.over.clear()
        await flap(running, 2)
        await waits.waiting.wait()
        running.stop.set()
        await running.running
    assert await wire.ready(settings.queues.interactive) == 1


async def keep(_delivery):
    """Never settle anything."""
    await asyncio.Event().wait()


@pytest.fixture
def lose(through_proxy, proxy, wire, consuming, waits):
    """Lose the connection so many times, each time with a job in hand."""

    async def lose(times):
        async with consuming(
            through_proxy, keep, hold_off=waits.hold_off, drain_timeout_s=0
        ) as running:
            await wire.publish(b"1")
            for _ in range(times):
                await running.deliveries.get()
                proxy.cut()
            await running.deliveries.get()

    return lose


async def test_a_lost_connection_counts_as_well(lose, waits):
    """A link that drops again and again would use up deliveries, too."""
    await lose(times=4)
    assert waits.slept_s == [1.0, 2.0, 4.0]


async def test_rabbitmq_4_3_forgives_pauses(through_proxy, proxy, wire, consuming, waits, flap):
    """It says its version when we connect, and counts no polite return: nothing is held off."""
    proxy.claims_4_3 = True
    async with await connect(through_proxy, "test") as connection:
        assert version_of(connection).startswith("4.3.")
        assert not counts_nacks(version_of(connection))
    _, handle = until_all_is_well()
    async with consuming(through_proxy, handle, hold_off=waits.hold_off) as running:
        await wire.publish(b"1")
        await flap(running, 4)
    assert waits.slept_s == []


async def test_rabbitmq_4_3_does_not_forgive_losses(lose, proxy, waits):
    """A channel that ends with a job in hand may have been ended by that job."""
    proxy.claims_4_3 = True
    await lose(times=3)
    assert waits.slept_s == [1.0, 2.0]
