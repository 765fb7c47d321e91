"""Signals, and an orderly end."""

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import structlog

log = structlog.get_logger(__name__)

Result = TypeVar("Result")

HARD_STOP_STATUS = 1
"""The stop was not orderly; what was in hand is the broker's to give to others."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_on_signals(*, hard_stop_after_s: float | None = None) -> Iterator[asyncio.Event]:
    """An event that the first SIGTERM or SIGINT sets. The second one ends the process at once.

    Args:
        hard_stop_after_s: from the first signal to the end of the process, whatever holds up the
            end of the block: a thread can't be ended that waits for a dead file server. None for
            never.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    hard_stop = threading.Timer(hard_stop_after_s or 0.0, _hard_stop, (loop,))
    hard_stop.daemon = True

    def begin_stop() -> None:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        if hard_stop_after_s is not None:
            hard_stop.start()
        stop.set()

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, begin_stop)
    try:
        yield stop
    finally:
        hard_stop.cancel()
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _hard_stop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        log.error("hard_stop", unfinished=sorted(map(_whereabouts, asyncio.all_tasks(loop))))
    finally:
        os._exit(HARD_STOP_STATUS)


def _whereabouts(task: asyncio.Task[Any]) -> str:
    """A task's name, and where it waits."""
    frames = task.get_stack()
    places = (f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" for frame in frames)
    return f"{task.get_name()} at {', '.join(places)}"


async def unless_stopped(stop: asyncio.Event, work: Coroutine[None, None, Result]) -> Result | None:
    """The result of `work`, or None when `stop` is set first; `work` is cancelled then.

    When both happen at once, the result counts: it may be something that has to be closed.

    Raises:
        Exception: whatever `work` raised.
    """
    try:
        async with asyncio.TaskGroup() as group:
            working = group.create_task(work, name="unless-stopped")
            stopping = group.create_task(stop.wait(), name="stop")
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            working.cancel()
            stopping.cancel()
    except ExceptionGroup as errors:
        # Only `work` can fail.
        raise errors.exceptions[0] from None
    return None if working.cancelled() else working.result()


async def first_of(*awaited: asyncio.Event | asyncio.Future[Any]) -> set[object]:
    """Wait until an event is set or a future is done; returns those that are."""
    async with asyncio.TaskGroup() as group:
        events = {
            one: group.create_task(one.wait(), name="first-of")
            for one in awaited
            if isinstance(one, asyncio.Event)
        }
        futures = [one for one in awaited if not isinstance(one, asyncio.Event)]
        await asyncio.wait([*events.values(), *futures], return_when=asyncio.FIRST_COMPLETED)
        first: set[object] = {event for event, waiting in events.items() if waiting.done()}
        for waiting in events.values():
            waiting.cancel()
    return first | {future for future in futures if future.done()}
