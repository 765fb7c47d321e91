import asyncio

import pytest

from utterd.backoff import FullJitter
from utterd.environment import Environment
from utterd.errors import StoreUnavailableError


class Part:
    """Something that works, or does not, and says so when it is probed."""

    def __init__(self, *, works=False):
        self.works = works
        self.probes = 0
        self._probed = asyncio.Condition()

    async def probe(self):
        async with self._probed:
            self.probes += 1
            self._probed.notify_all()
        if not self.works:
            raise StoreUnavailableError(f"no answer to probe {self.probes}")

    async def probed(self, count):
        async with self._probed:
            await self._probed.wait_for(lambda: self.probes >= count)


class Waits:
    """Back-off whose waits end when the test says so."""

    def __init__(self, *, free=True, cap_s=8.0):
        self.waits_s = []
        self.free = asyncio.Event()
        if free:
            self.free.set()
        self.begun, self.over = asyncio.Event(), asyncio.Event()
        self.delays = FullJitter(base_s=1.0, cap_s=cap_s, uniform=max, sleep=self._sleep)

    async def _sleep(self, wait_s):
        self.waits_s.append(wait_s)
        self.begun.set()
        await self.free.wait()
        # Others must have their turn, as during every real wait.
        await asyncio.sleep(0)
        self.over.set()


@pytest.fixture
def environment():
    return Environment()


@pytest.fixture
async def watching(environment):
    """Watches parts until the test ends."""
    tasks = []

    def watch(part, probe, delays):
        tasks.append(asyncio.create_task(environment.watch(part, probe, delays), name=part))
        return tasks[-1]

    async with asyncio.timeout(10):
        yield watch
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def test_it_is_sound_until_something_is_reported(environment):
    """Exactly one of the two events is set at any time."""
    assert (environment.sound.is_set(), environment.troubled.is_set()) == (True, False)
    environment.report("store", "down")
    assert (environment.sound.is_set(), environment.troubled.is_set()) == (False, True)
    environment.clear("store")
    assert (environment.sound.is_set(), environment.troubled.is_set()) == (True, False)


def test_it_is_sound_again_when_the_last_part_is(environment):
    """Each part has a reason of its own, the newest one."""
    environment.report("store", "down")
    environment.report("engine", "no worker")
    environment.report("store", "slow")
    assert environment.faults == {"store": "slow", "engine": "no worker"}
    environment.clear("store")
    assert environment.troubled.is_set()
    environment.clear("engine")
    assert environment.sound.is_set()
    assert environment.faults == {}


def test_what_was_never_broken_can_be_cleared(environment):
    """Whoever finds that a part works need not know whether anybody doubted it."""
    environment.clear("store")
    environment.report("engine", "no worker")
    environment.clear("store")
    assert environment.faults == {"engine": "no worker"}


async def test_a_part_that_works_is_left_alone(environment, watching):
    """Nobody probes without a reason."""
    part, waits = Part(works=True), Waits()
    task = watching("store", part.probe, waits.delays)
    environment.report("engine", "no worker")
    await asyncio.wait([task], timeout=0)
    assert part.probes == 0


async def test_a_broken_part_is_probed_until_it_works(environment, watching):
    """At once, and then with growing waits; status tells what the last probe found."""
    part, waits = Part(), Waits()
    watching("store", part.probe, waits.delays)
    environment.report("store", "down")
    await part.probed(5)
    assert waits.waits_s[:4] == [1.0, 2.0, 4.0, 8.0]
    assert environment.faults["store"].startswith("no answer to probe")
    part.works = True
    await environment.sound.wait()
    assert environment.faults == {}


async def test_a_part_that_flaps_is_probed_as_seldom_as_before(environment, watching):
    """A recovery that does not last resets no back-off."""
    part, waits = Part(works=True), Waits(cap_s=3600.0)
    watching("store", part.probe, waits.delays)
    for _ in range(4):
        environment.report("store", "down")
        await environment.sound.wait()
    assert waits.waits_s == [1.0, 2.0, 4.0]


async def test_a_recovery_that_lasts_resets_the_waits(environment, watching):
    """The next fault, long after, is probed at once again."""
    part, waits = Part(works=True), Waits(cap_s=0.0)
    watching("store", part.probe, waits.delays)
    for _ in range(3):
        environment.report("store", "down")
        await environment.sound.wait()
    assert waits.waits_s == []
    assert part.probes == 3


async def test_a_part_that_somebody_else_found_sound_is_not_probed(environment, watching):
    """A probe that comes late can't break what works."""
    part, waits = Part(), Waits(free=False)
    task = watching("store", part.probe, waits.delays)
    environment.report("store", "down")
    await waits.begun.wait()
    environment.clear("store")
    waits.free.set()
    await waits.over.wait()
    await asyncio.wait([task], timeout=0)
    assert part.probes == 1
    assert environment.sound.is_set()


async def test_two_parts_recover_apart(environment, watching):
    """Each has a watch of its own, and the last one to recover makes the environment sound."""
    store, publishing = Part(), Part(works=True)
    watching("store", store.probe, Waits().delays)
    watching("publishing", publishing.probe, Waits().delays)
    environment.report("store", "down")
    environment.report("publishing", "no exchange")
    await store.probed(3)
    assert set(environment.faults) == {"store"}
    store.works = True
    await environment.sound.wait()
