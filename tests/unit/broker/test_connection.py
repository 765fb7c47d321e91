import asyncio
import socket

import pytest
from structlog.testing import capture_logs

from utterd.backoff import FullJitter
from utterd.broker.connection import address, connect, keep_connecting, losses_raised
from utterd.config import BrokerSettings
from utterd.errors import BrokerUnavailableError


class EnoughError(Exception):
    """Ends a wait that would go on for ever."""


@pytest.fixture
def refused() -> BrokerSettings:
    """Settings that name a port where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    return BrokerSettings(url=f"amqp://user:pass-word@127.0.0.1:{port}/")


async def test_a_refused_port_is_told_without_the_password(refused):
    """The message names host and port, and what to check."""
    with pytest.raises(BrokerUnavailableError, match="Check that it runs") as caught:
        await connect(refused, "test")
    assert address(refused) in str(caught.value)
    assert "pass-word" not in str(caught.value)


async def test_keeps_connecting_with_full_jitter_and_says_why(refused):
    """Each failure is logged with its reason; waits are drawn from a doubling range up to a cap."""
    ranges: list[tuple[float, float]] = []
    slept_s: list[float] = []

    def uniform(low: float, high: float) -> float:
        ranges.append((low, high))
        return high / 2

    async def sleep(delay_s: float) -> None:
        slept_s.append(delay_s)
        if len(slept_s) == 5:
            raise EnoughError

    delays = FullJitter(base_s=0.2, cap_s=1.0, uniform=uniform, sleep=sleep)
    with capture_logs() as logs, pytest.raises(EnoughError):
        await keep_connecting(lambda: refused, "utterd test", delays)
    assert ranges == [(0.0, 0.2), (0.0, 0.4), (0.0, 0.8), (0.0, 1.0), (0.0, 1.0)]
    assert slept_s == [0.1, 0.2, 0.4, 0.5, 0.5]
    assert [(line["event"], line["failures"]) for line in logs] == [
        ("broker_unavailable", failures) for failures in range(1, 6)
    ]
    assert all(line["connection"] == "utterd test" for line in logs)
    assert all(address(refused) in line["reason"] for line in logs)
    assert "pass-word" not in str(logs)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://u:p@broker/", "broker:5672"),
        ("amqps://u:p@broker/", "broker:5671"),
        ("amqp://u:p@broker:1234/vhost", "broker:1234"),
    ],
)
def test_an_address_has_a_port_and_no_credentials(url, expected):
    """What logs show of a broker."""
    assert address(BrokerSettings(url=url)) == expected


async def test_a_cancellation_that_nobody_asked_for_is_a_lost_connection():
    """aio-pika cancels what waits when its connection dies."""

    async def wait() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        with losses_raised():
            await future

    with pytest.raises(ConnectionError, match="lost"):
        await asyncio.create_task(wait())


async def test_a_cancellation_that_somebody_asked_for_stays_one():
    """Whoever cancels the task gets a cancelled task."""

    async def wait() -> None:
        with losses_raised():
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await waiting
    assert waiting.cancelled()


@pytest.mark.parametrize("error", [RuntimeError("a"), ConnectionResetError("b")])
async def test_a_cancellation_stays_one_when_the_connection_is_lost_on_the_way_out(error):
    """Its task must end: a loop that takes it for an outage would go on for ever."""

    async def wait() -> None:
        with losses_raised():
            try:
                await asyncio.Event().wait()
            finally:
                raise error

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert waiting.cancelled()


async def test_a_call_on_a_closed_connection_is_a_lost_connection():
    """aio-pika raises RuntimeError then."""
    with pytest.raises(ConnectionError, match="closed"), losses_raised():
        raise RuntimeError("Connection was not opened")


@pytest.mark.parametrize("error", [ValueError("a"), ConnectionResetError("b"), TimeoutError("c")])
async def test_other_errors_pass(error):
    """Only the two odd ways of telling are translated."""
    with pytest.raises(type(error)) as caught, losses_raised():
        raise error
    assert caught.value is error
