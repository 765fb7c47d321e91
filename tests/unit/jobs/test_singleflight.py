"""One computation for all who want the same."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.jobs.singleflight import SingleFlight


class Computation:
    """Counts its runs, and ends when it is told to."""

    def __init__(self):
        self.runs = 0
        self.cancelled = 0
        self.begun = asyncio.Event()
        self.end = asyncio.Event()
        self.error = None
        self.pace = None

    async def __call__(self, pace):
        self.runs += 1
        self.pace = pace
        self.begun.set()
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return f"result {self.runs}"


async def test_equal_keys_share_one_computation():
    """All who come while it runs get its result."""
    compute = Computation()
    async with asyncio.TaskGroup() as group:
        flights = SingleFlight(group)
        waiting = [group.create_task(flights.run("a", compute)) for _ in range(3)]
        await compute.begun.wait()
        compute.end.set()
    assert [task.result() for task in waiting] == ["result 1"] * 3


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
async def test_whoever_is_in_a_hurry_hurries_all(first, second):
    """Patient work becomes urgent with the first who waits for it, and never patient again."""
    compute = Computation()
    async with asyncio.TaskGroup() as group:
        flights = SingleFlight(group)
        group.create_task(flights.run("a", compute, urgent=first))
        await compute.begun.wait()
        assert compute.pace.is_urgent is first
        joining = group.create_task(flights.run("a", compute, urgent=second))
        await asyncio.wait({joining}, timeout=0)
        assert compute.pace.is_urgent is (first or second)
        compute.end.set()


async def test_different_keys_do_not():
    """Each key has a computation of its own."""
    compute = Computation()
    compute.end.set()
    async with asyncio.TaskGroup() as group:
        flights = SingleFlight(group)
        results = await asyncio.gather(flights.run("a", compute), flights.run("b", compute))
    assert compute.runs == 2
    assert len(results) == 2


async def test_who_comes_later_computes_anew():
    """A finished computation is no cache."""
    compute = Computation()
    compute.end.set()
    async with asyncio.TaskGroup() as group:
        flights = SingleFlight(group)
        assert await flights.run("a", compute) == "result 1"
        assert await flights.run("a", compute) == "result 2"


async def test_an_error_reaches_all():
    """It is raised to everybody who waits, and to nobody who comes later."""
    compute = Computation()
    compute.error = ValueError("no")
    async with asyncio.TaskGroup() as group:
        flights = SingleFlight(group)
        waiting = asyncio.gather(
            flights.run("a", compute), flights.run("a", compute), return_exceptions=True
        )
        await compute.begun.wait()
        compute.end.set()
        assert await waiting == [compute.error] * 2
        compute.error = None
        assert await flights.run("a", compute) == "result 2"


async def test_one_who_gives_up_leaves_the_others_their_result():
    """Also when it is the one who began it."""
    compute = Computation()
    async with asyncio.TaskGroup() as group:
        flights = SingleFlight(group)
        first = group.create_task(flights.run("a", compute))
        second = group.create_task(flights.run("a", compute))
        await compute.begun.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        compute.end.set()
        assert await second == "result 1"


async def test_the_last_one_to_give_up_cancels_it():
    """Nobody would hear the result; the next one to ask computes anew."""
    compute = Computation()
    async with asyncio.TaskGroup() as group:
        flights = SingleFlight(group)
        waiting = [group.create_task(flights.run("a", compute)) for _ in range(2)]
        await compute.begun.wait()
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        compute.end.set()
        assert await flights.run("a", compute) == "result 2"
    assert compute.cancelled == 1


async def test_giving_up_before_it_began_is_fine():
    """A computation that nobody waited for never starts."""
    compute = Computation()
    async with asyncio.TaskGroup() as group:
        flights = SingleFlight(group)
        task = group.create_task(flights.run("a", compute))
        group.create_task(_cancel(task))
    assert compute.runs <= 1
    assert task.cancelled()


async def _cancel(task):
    task.cancel()


class Airport:
    """Plays any order of coming, giving up and ending."""

    def __init__(self, group):
        self._group = group
        self._flights = SingleFlight(group)
        self._running = {}
        self.passengers = []
        self.left = set()

    def join(self, key, _number):
        self.passengers.append(self._group.create_task(self._ride(key)))

    def leave(self, _key, number):
        if self.passengers:
            passenger = self.passengers[number % len(self.passengers)]
            self.left.add(passenger)
            passenger.cancel()

    def land(self, key, _number):
        if key in self._running and not self._running[key].done():
            self._running[key].set_result(f"result of {key}")

    def crash(self, key, _number):
        if key in self._running and not self._running[key].done():
            self._running[key].set_exception(ZeroDivisionError())

    async def land_all(self):
        while not all(passenger.done() for passenger in self.passengers):
            for key in KEYS:
                self.land(key, 0)
            await asyncio.sleep(0)

    async def _ride(self, key):
        try:
            return key, await self._flights.run(key, lambda _pace: self._fly(key))
        except ZeroDivisionError:
            return key, f"result of {key}"

    async def _fly(self, key):
        assert key not in self._running, "two computations of one key at once"
        self._running[key] = asyncio.get_running_loop().create_future()
        try:
            return await self._running[key]
        finally:
            del self._running[key]


KEYS = "ab"
STEPS = st.tuples(
    st.sampled_from([Airport.join, Airport.leave, Airport.land, Airport.crash]),
    st.sampled_from(KEYS),
    st.integers(0, 5),
)


@given(steps=st.lists(STEPS, max_size=25))
def test_whatever_happens_everybody_gets_an_answer(steps):
    """No order of coming, giving up and ending leaves anyone waiting or with another's result."""

    async def play():
        async with asyncio.TaskGroup() as group:
            airport = Airport(group)
            for step, key, number in steps:
                step(airport, key, number)
                for _ in range(number):
                    await asyncio.sleep(0)
            await airport.land_all()
        for passenger in airport.passengers:
            if passenger not in airport.left:
                key, result = passenger.result()
                assert result == f"result of {key}"

    asyncio.run(play())
