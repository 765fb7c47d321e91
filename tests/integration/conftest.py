import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest

from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.topology import topology
from utterd.config import BrokerSettings, QueueLimits
from utterd.sandbox import Sandbox
from utterd.testing.broker import with_own_names


@pytest.fixture
def until():
    """Waits for what no event tells."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():  # noqa: ASYNC110 - it is a look at somebody else's state
                await asyncio.sleep(0)

    return wait


@pytest.fixture
def broker_limits() -> QueueLimits:
    """The queues' limits; a module may have its own."""
    return QueueLimits()


@pytest.fixture
async def bare_settings(
    sandbox: Sandbox, broker_limits: QueueLimits
) -> AsyncIterator[BrokerSettings]:
    """The sandbox's broker under names of the test's own; nothing is declared yet."""
    broker = BrokerSettings(url=sandbox.amqp_url, reconnect_cap_s=0.5, limits=broker_limits)
    settings = with_own_names(broker, f"test-{uuid4().hex[:12]}")
    yield settings
    plan = topology(settings)
    async with await connect(settings, "clean-up") as connection, connection.channel() as channel:
        for queue in plan.queues:
            await channel.queue_delete(queue.name)
        for exchange in plan.exchanges:
            await channel.exchange_delete(exchange.name)


@pytest.fixture
async def settings(bare_settings: BrokerSettings) -> BrokerSettings:
    """The same, with its topology declared."""
    async with await connect(bare_settings, "set-up") as connection:
        await declare.apply(connection, topology(bare_settings))
    return bare_settings
