"""The one way to run something slow without holding up the event loop."""

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Offload:
    """A named pool of threads for blocking calls: encoding, boto3, files.

    Calls see the context variables of the task that waits for them, so log fields and
    trace spans carry over. Leaving the context waits for the calls that still run.

    Args:
        name: prefix of the threads' names, as seen in a debugger or in `top -H`.
        threads: how many calls run at once; further ones wait their turn in order.
    """

    def __init__(self, name: str, threads: int) -> None:
        # The pool starts a thread with its first call, not here.
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)
        self._threads = threads

    @property
    def threads(self) -> int:
        """How many calls can run at the same time."""
        return self._threads

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Not on this pool: a thread can't wait for its own end.
        await asyncio.to_thread(self._executor.shutdown)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function(*args, **kwargs)` in a thread and return what it returns.

        A cancelled wait never tears a call apart: one that has begun runs to its end in
        its thread, one that has not begun never starts.

        Raises:
            RuntimeError: the context was left already.
        """
        context = contextvars.copy_context()
        call = functools.partial(context.run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)
