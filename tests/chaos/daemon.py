"""Daemons that start at once: forked from a server that has utterd imported already."""

import asyncio
import multiprocessing
import os
from collections.abc import Callable, Mapping
from itertools import count
from multiprocessing.context import ForkServerContext

from chaos import victim
from support.daemon import LogLine, read_log
from support.place import PATIENCE_S, Place

POLL_S = 0.02

_numbers = count()


def fork_server() -> ForkServerContext:
    """Where such daemons come from; the server itself starts with the first of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["utterd.__main__"])
    return context


class ForkedDaemon:
    """`utterd run` in a process of its own.

    Args:
        context: of `fork_server`.
        place: where it works.
        settings: environment variables on top of the place's.
        step: where it kills itself, a name in `victim`.
    """

    def __init__(
        self,
        context: ForkServerContext,
        place: Place,
        settings: Mapping[str, str],
        step: str | None = None,
    ) -> None:
        self.log_path = place.directory / f"daemon-{next(_numbers)}.log"
        self._process = context.Process(
            target=victim.run,
            args=(step, {**place.environ(), **settings}, self.log_path),
            daemon=False,
        )
        self._process.start()

    @property
    def log(self) -> list[LogLine]:
        return read_log(self.log_path) if self.log_path.exists() else []

    @property
    def worker_pids(self) -> list[int]:
        """Of all workers that it has started so far."""
        return [int(str(line["pid"])) for line in self.logged("worker_started")]

    def logged(self, event: str) -> list[LogLine]:
        """What it logged about one kind of event."""
        return [line for line in self.log if line["event"] == event]

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait for something in the log, or in the world, while the daemon lives."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                assert self._process.is_alive(), self.log_path.read_text()
                await asyncio.sleep(POLL_S)

    async def until_logged(self, event: str, times: int = 1) -> None:
        await self.until(lambda: len(self.logged(event)) >= times)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        """End it with SIGKILL. Its workers notice and go."""
        self._process.kill()
        self._process.join()

    async def ended(self) -> int | None:
        """The exit status, negative for a signal, once it has ended."""
        await asyncio.to_thread(self._process.join, PATIENCE_S)
        return self._process.exitcode

    async def stop(self) -> None:
        """End it with SIGTERM, as a service manager does."""
        self.terminate()
        assert await self.ended() == os.EX_OK, self.log_path.read_text()
