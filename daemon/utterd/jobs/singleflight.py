"""One computation for all who want the same thing at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from utterd.engines.pace import Pace

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Flight(Generic[Result]):
    outcome: asyncio.Future[Result]
    pace: Pace
    task: asyncio.Task[None] | None = None
    passengers: int = 0


class SingleFlight(Generic[Result]):
    """Shares computations by key.

    The computation is nobody's own: it goes on while anybody waits for it, and is cancelled
    when the last one gives up.

    Args:
        tasks: the group that the computations live in.
    """

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._flights: dict[str, _Flight[Result]] = {}

    async def run(
        self, key: str, compute: Callable[[Pace], Awaitable[Result]], *, urgent: bool = False
    ) -> Result:
        """The result of `compute`, or of one under the same key that is under way.

        Args:
            key: equal for equal computations.
            compute: gets the pace that is wanted, which somebody else may hurry later.
            urgent: whether this one is wanted at once, whoever began it.

        Raises:
            Exception: whatever the computation raised, to everybody who waits for it.
        """
        flight = self._flights.get(key)
        if flight is None:
            outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
            flight = self._flights[key] = _Flight(outcome, Pace(urgent=urgent))
            flight.task = self._tasks.create_task(
                self._fly(key, flight, compute), name=f"flight-{key[:8]}"
            )
        if urgent:
            flight.pace.hurry()
        flight.passengers += 1
        try:
            return await asyncio.shield(flight.outcome)
        finally:
            flight.passengers -= 1
            if flight.passengers == 0 and flight.task is not None and not flight.outcome.done():
                self._forget(key, flight)
                flight.task.cancel()

    async def _fly(
        self, key: str, flight: _Flight[Result], compute: Callable[[Pace], Awaitable[Result]]
    ) -> None:
        try:
            result = await compute(flight.pace)
        except asyncio.CancelledError:
            flight.outcome.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            flight.outcome.set_exception(error)
            # The last passenger may have left in this very moment.
            flight.outcome.exception()
        else:
            flight.outcome.set_result(result)
        finally:
            self._forget(key, flight)

    def _forget(self, key: str, flight: _Flight[Result]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
