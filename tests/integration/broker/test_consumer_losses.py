import asyncio

import pytest
from pydantic import SecretStr

from utterd.broker.connection import connect
from utterd.errors import BrokerUnavailableError

pytestmark = pytest.mark.sandbox


@pytest.fixture
def broker_log(sandbox, bare_settings):
    """What the broker has logged since the test began, up to the moment of the call."""
    start = sandbox.rabbitmq.log_path.stat().st_size
    stranger = SecretStr("amqp://stranger:wrong@" + sandbox.amqp_url.rpartition("@")[2])

    async def read() -> str:
        # The refused login is the last line: what came before it has been written.
        with pytest.raises(BrokerUnavailableError):
            await connect(bare_settings.model_copy(update={"url": stranger}), "stranger")
        while "stranger" not in (log := sandbox.rabbitmq.log_path.read_bytes()[start:].decode()):
            pass
        return log

    return read


async def ack(delivery) -> None:
    await delivery.ack()


async def test_a_lost_connection_costs_a_settlement_and_not_the_audio(
    settings, wire, consuming, management, broker_log
):
    """The job runs to its end, its late ack is dropped quietly, and the second delivery counts."""
    lost = asyncio.Event()
    finished: list[bool] = []

    async def handle(delivery) -> None:
        if not finished:
            await lost.wait()
        await delivery.ack()
        finished.append(True)

    async with consuming(settings, handle, prefetch=1) as running:
        await wire.publish(b"1")
        await running.deliveries.get()
        await management.close_connections("utterd consumer")
        again = await running.deliveries.get()
        assert again.message.body == b"1"
        lost.set()
    assert finished == [True, True]
    assert await wire.ready(settings.queues.interactive) == 0
    assert await wire.ready(settings.queues.dead) == 0
    # A stale tag on a new channel would end it with 406, PRECONDITION_FAILED.
    assert "PRECONDITION_FAILED" not in await broker_log()


@pytest.mark.parametrize("settle", ["ack", "reject", "release"])
async def test_a_settlement_on_a_dead_channel_is_dropped(
    through_proxy, proxy, wire, consuming, settle
):
    """None of the three raises, and none of them counts: the broker delivers again."""
    lost = asyncio.Event()
    deliveries = 0

    async def handle(delivery) -> None:
        nonlocal deliveries
        deliveries += 1
        if deliveries == 1:
            await lost.wait()
            await getattr(delivery, settle)()
        else:
            await delivery.ack()

    async with consuming(through_proxy, handle, prefetch=1) as running:
        await wire.publish(b"1")
        await running.deliveries.get()
        proxy.cut()
        assert (await running.deliveries.get()).message.body == b"1"
        lost.set()
    assert deliveries == 2
    assert await wire.ready(through_proxy.queues.dead) == 0


@pytest.mark.parametrize("position_bytes", range(500, 1800, 65))
async def test_survives_a_cut_at_any_point(through_proxy, proxy, wire, consuming, position_bytes):
    """Wherever its first connection breaks off, the consumer gets another and works."""
    proxy.cut_after_bytes = position_bytes
    async with consuming(through_proxy, ack) as running:
        await wire.publish(b"1")
        assert (await running.deliveries.get()).message.body == b"1"


async def test_readiness_follows_the_consumers(through_proxy, proxy, consuming):
    """`consuming` is unset while the broker is away, and set when it is back."""
    async with consuming(through_proxy, ack) as running:
        proxy.accepting = False
        proxy.cut()
        await proxy.refusals(1)
        assert not running.consumer.consuming.is_set()
        proxy.accepting = True
        await running.consumer.consuming.wait()


async def test_a_property_beyond_the_calendar_costs_no_connection(
    through_proxy, proxy, wire, consuming, management
):
    """A timestamp that Python can't hold is none, and the message comes like any other."""
    async with consuming(through_proxy, ack) as running:
        connections = proxy.accepted
        published = {
            "routing_key": "synthesize.interactive",
            "payload": "odd",
            "payload_encoding": "string",
            "properties": {"timestamp": 2**62, "delivery_mode": 2},
        }
        exchange = through_proxy.exchanges.jobs
        await management.request("POST", "exchanges", "/", exchange, "publish", body=published)
        message = (await running.deliveries.get()).message
        assert (message.body, message.timestamp) == (b"odd", None)
        await wire.publish(b"next")
        assert (await running.deliveries.get()).message.body == b"next"
        assert proxy.accepted == connections
