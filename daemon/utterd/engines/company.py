"""Who speaks in one worker at the same time: several together, or one alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Company:
    """Lets requests into a worker together, but for those that have to be alone there.

    A request whose worker died is next tried alone: so it is known whether it was the one that
    killed it, and no neighbour dies with it again.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._together = 0
        self._is_alone = False
        self._want_to_be_alone = 0

    @asynccontextmanager
    async def join(self, *, alone: bool) -> AsyncIterator[None]:
        """Be in the worker for the length of the block; waits until that is possible.

        Args:
            alone: whether nobody else may be there. Who comes later waits behind such a one.
        """
        await (self._enter_alone() if alone else self._enter())
        try:
            yield
        finally:
            await self._leave()

    async def _enter(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._is_alone and not self._want_to_be_alone)
            self._together += 1

    async def _enter_alone(self) -> None:
        async with self._changed:
            self._want_to_be_alone += 1
            try:
                await self._changed.wait_for(lambda: not self._is_alone and not self._together)
            finally:
                self._want_to_be_alone -= 1
                self._changed.notify_all()
            self._is_alone = True

    async def _leave(self) -> None:
        async with self._changed:
            if self._is_alone:
                self._is_alone = False
            else:
                self._together -= 1
            self._changed.notify_all()
