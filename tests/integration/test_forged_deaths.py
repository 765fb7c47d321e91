"""What a forged `x-death` does to the broker, on a node of its own, for it may not survive that."""

import asyncio

import aio_pika
import pytest

from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.topology import topology
from utterd.broker.version import parse_version, version_of
from utterd.config import BrokerSettings
from utterd.doctor.broker import examine_broker
from utterd.doctor.finding import Verdict
from utterd.sandbox import Sandbox

pytestmark = pytest.mark.sandbox


@pytest.fixture
def poisoned(tmp_path):
    sandbox = Sandbox(tmp_path)
    sandbox.start()
    yield BrokerSettings(url=sandbox.amqp_url)
    sandbox.stop()


async def dead_lettering(settings):
    return {one.check: one async for one in examine_broker(settings)}["dead-lettering"]


async def test_the_doctor_finds_dead_lettering_broken(poisoned):
    """RabbitMQ 3.10 fails at notes that it has not written, and from then on at honest jobs, too.

    RabbitMQ 4 does not, and then nothing is found.
    """
    async with await connect(poisoned, "test") as connection:
        await declare.apply(connection, topology(poisoned))
        is_old = (parse_version(version_of(connection)) or (0, 0)) < (4, 0)
        assert (await dead_lettering(poisoned)).verdict is Verdict.OK
        async with connection.channel() as channel:
            message = aio_pika.Message(b"{}", expiration=0.01, headers={"x-death": ["a"]})
            await channel.default_exchange.publish(message, poisoned.queues.batch)
        async with asyncio.timeout(60):
            while is_old and (await dead_lettering(poisoned)).verdict is Verdict.OK:
                pass
    finding = await dead_lettering(poisoned)
    assert finding.verdict is (Verdict.FAULT if is_old else Verdict.OK)
    assert ("docs/security.md" in finding.message) is is_old
