from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.topology import topology
from utterd.config import BrokerSettings
from utterd.sandbox import Sandbox
from utterd.testing.broker import with_own_names


@pytest.fixture
async def bare_settings(sandbox: Sandbox) -> AsyncIterator[BrokerSettings]:
    """The sandbox's broker under names of the test's own; nothing is declared yet."""
    broker = BrokerSettings(url=sandbox.amqp_url, reconnect_cap_s=0.5)
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
