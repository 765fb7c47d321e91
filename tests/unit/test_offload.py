"""The helper that keeps slow calls off the event loop."""

import asyncio
import contextvars
import threading

import pytest

from utterd.offload import Offload

_JOB_ID = contextvars.ContextVar("job_id", default="none")


async def test_runs_in_a_thread_of_its_own_name():
    """A call runs outside the loop's thread, in one that carries the pool's name."""
    async with Offload("encode", threads=1) as offload:
        name = await offload.run(lambda: threading.current_thread().name)
    assert name.startswith("encode")


async def test_carries_context_variables_along():
    """A call sees the context variables of the task that waits for it."""
    _JOB_ID.set("42")
    async with Offload("encode", threads=1) as offload:
        assert await offload.run(_JOB_ID.get) == "42"


async def test_a_call_does_not_change_the_context_of_its_task():
    """What a call sets stays in the call."""
    async with Offload("encode", threads=1) as offload:
        await offload.run(_JOB_ID.set, "43")
    assert _JOB_ID.get() == "none"


async def test_passes_arguments_results_and_errors():
    """Arguments go in, and the result or the exception comes out, as in a plain call."""
    async with Offload("encode", threads=1) as offload:
        assert await offload.run(sorted, [3, 1, 2], reverse=True) == [3, 2, 1]
        with pytest.raises(ZeroDivisionError):
            await offload.run(divmod, 1, 0)


async def test_runs_as_many_calls_at_once_as_it_has_threads():
    """Two threads let two calls meet at a barrier."""
    barrier = threading.Barrier(2, timeout=5)
    async with Offload("encode", threads=2) as offload:
        assert offload.threads == 2
        await asyncio.gather(offload.run(barrier.wait), offload.run(barrier.wait))


async def test_closing_waits_for_a_call_whose_task_was_cancelled():
    """A call that has begun runs to its end, though nobody waits for its result."""
    begun, release, finished = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        release.wait(5)
        finished.set()

    async with Offload("encode", threads=1) as offload:
        task = asyncio.create_task(offload.run(call), name="call")
        await asyncio.to_thread(begun.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()
    assert finished.is_set()


async def test_a_cancelled_call_that_waits_for_its_turn_never_starts():
    """Cancelling a queued call takes it off the queue."""
    release = threading.Event()
    started: list[str] = []
    async with Offload("encode", threads=1) as offload:
        first = asyncio.create_task(offload.run(release.wait, 5), name="first")
        queued = asyncio.create_task(offload.run(started.append, "queued"), name="queued")
        # One turn of the loop hands both calls to the pool.
        await asyncio.wait({first, queued}, timeout=0)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        release.set()
        await first
    assert started == []


async def test_refuses_calls_after_it_closed():
    """A closed pool raises instead of waiting for ever."""
    async with Offload("encode", threads=1) as offload:
        pass
    with pytest.raises(RuntimeError):
        await offload.run(print)
