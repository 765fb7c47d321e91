import asyncio
import signal
import subprocess
import sys

import pytest

from utterd.lifecycle import (
    HARD_STOP_STATUS,
    STOP_SIGNALS,
    first_of,
    stop_on_signals,
    unless_stopped,
)

WAIT_FOR_SIGNALS = """
import asyncio
from utterd.lifecycle import stop_on_signals

async def main():
    with stop_on_signals() as stop:
        print("ready", flush=True)
        await stop.wait()
        print("stopping", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("number", STOP_SIGNALS, ids=lambda number: number.name)
async def test_the_first_signal_asks_for_a_stop(number):
    """SIGTERM and SIGINT set the event, and nothing else happens."""
    with stop_on_signals() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        async with asyncio.timeout(5):
            await stop.wait()


@pytest.mark.parametrize("second", STOP_SIGNALS, ids=lambda number: number.name)
def test_the_second_signal_ends_the_process(second):
    """Whoever can't wait for the drain gets an end, with the signal as the exit status."""
    with subprocess.Popen(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", WAIT_FOR_SIGNALS], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == "stopping\n"
            process.send_signal(second)
            assert process.wait(timeout=10) == -second
        finally:
            process.kill()


async def test_handlers_are_put_back():
    """After the block, signals do what they did before."""
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with stop_on_signals():
        assert [signal.getsignal(number) for number in STOP_SIGNALS] != before
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


async def test_work_that_ends_first_gives_its_result():
    """Without a stop, the result comes through."""

    async def work() -> str:
        return "connected"

    assert await unless_stopped(asyncio.Event(), work()) == "connected"


async def test_a_stop_cancels_work():
    """With a stop, the work is cancelled and there is no result."""
    stop = asyncio.Event()
    ended = asyncio.Event()

    async def work() -> None:
        stop.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    assert await unless_stopped(stop, work()) is None
    assert ended.is_set()


async def test_a_result_that_comes_with_the_stop_is_not_lost():
    """A connection that opens in the moment of the stop is still there to be closed."""
    stop = asyncio.Event()

    async def work() -> str:
        stop.set()
        return "connected"

    assert await unless_stopped(stop, work()) == "connected"
    assert await unless_stopped(stop, work()) == "connected"


async def test_a_fault_of_the_work_comes_as_it_is():
    """Not inside a group: the caller catches what the work raises."""

    async def work() -> None:
        raise ConnectionError("refused")

    with pytest.raises(ConnectionError, match="refused"):
        await unless_stopped(asyncio.Event(), work())


async def test_whoever_waits_can_be_cancelled():
    """Cancelling the wait cancels the work with it."""
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await unless_stopped(asyncio.Event(), work())
    assert ended.is_set()


async def test_the_first_of_many_is_told():
    """Events and futures count alike, and what happens together is told together."""
    quiet, loud = asyncio.Event(), asyncio.Event()
    future = asyncio.get_running_loop().create_future()
    loud.set()
    assert await first_of(quiet, loud, future) == {loud}
    loud.clear()
    waiting = asyncio.ensure_future(first_of(quiet, loud, future))
    await asyncio.wait([waiting], timeout=0)
    future.set_result(None)
    quiet.set()
    assert await waiting == {quiet, future}


async def test_an_event_that_is_set_for_a_moment_is_told():
    """Whoever waits has seen it, though it is unset again."""
    event = asyncio.Event()
    waiting = asyncio.ensure_future(first_of(event))
    while not waiting.done():
        event.set()
        event.clear()
        await asyncio.sleep(0)
    assert await waiting == {event}


@pytest.mark.parametrize("end", ["error", "cancel"])
async def test_a_future_that_failed_is_done_too(end):
    """Its owner asks it for the error; whoever waits for the first of many does not."""
    future = asyncio.get_running_loop().create_future()
    if end == "error":
        future.set_exception(ConnectionError("lost"))
    else:
        future.cancel()
    assert await first_of(asyncio.Event(), future) == {future}
    with pytest.raises(ConnectionError if end == "error" else asyncio.CancelledError):
        future.result()


async def test_whoever_waits_for_the_first_can_be_cancelled():
    """The futures are somebody else's and stay as they are."""
    future = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await first_of(asyncio.Event(), future)
    assert not future.done()


HANG = """
import asyncio, threading
from utterd.lifecycle import stop_on_signals

async def main():
    with stop_on_signals(hard_stop_after_s=0.1) as stop:
        print("ready", flush=True)
        await stop.wait()
        await asyncio.to_thread(threading.Event().wait)

asyncio.run(main())
"""


def test_a_thread_that_never_ends_does_not_hold_up_the_end():
    """A dead file server must not make a stop last for ever; the log says what was waited for."""
    with subprocess.Popen(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", HANG], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.terminate()
            assert process.wait(timeout=10) == HARD_STOP_STATUS
            last_words = process.stdout.read()
            assert "hard_stop" in last_words
            assert "Task-1 at <string>" in last_words
        finally:
            process.kill()
