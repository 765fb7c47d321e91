"""Jobs that RabbitMQ gave up by itself."""

import asyncio

import pytest

from utterd.broker.lapse import read_lapse
from utterd.config import Lane, QueueLimits
from utterd.errors import DeliveryLimitError

pytestmark = pytest.mark.sandbox


@pytest.fixture
def broker_limits():
    return QueueLimits(delivery_limit=2)


async def leave(_delivery) -> None:
    """Take a message, and never settle it."""
    await asyncio.Event().wait()


async def ack(delivery) -> None:
    await delivery.ack()


@pytest.fixture
def lapses():
    return asyncio.Queue()


@pytest.fixture
def tell(lapses, settings):
    """A handler that keeps what it learns of the lapsed."""

    async def handle(delivery) -> None:
        lapses.put_nowait(read_lapse(delivery.message, settings))
        await delivery.ack()

    return handle


@pytest.mark.parametrize("lane", list(Lane))
async def test_an_expired_message_lapses(settings, wire, consuming, lapses, tell, lane):
    """Its lane, the reason and its expiration are known, its own properties are whole."""
    # No daemon runs while it waits.
    await wire.publish(b"1", lane, expiration=0.01, message_id="m-1", correlation_id="c-1")
    await wire.until_ready(settings.queues.lapsed, 1)
    async with consuming(settings, ack, handle_lapsed=tell):
        lapse = await lapses.get()
    assert (lapse.lane, lapse.reason, lapse.is_suspect) == (lane, "expired", False)
    message = lapse.message
    assert (message.body, message.message_id, message.correlation_id) == (b"1", "m-1", "c-1")
    assert message.expiration_s == pytest.approx(0.01)
    assert await wire.ready(settings.queues.dead) == 0


async def kill_daemons(consuming, settings, count, **options) -> None:
    """Lose so many consumers that hold whatever they take."""
    for _ in range(count):
        async with consuming(settings, leave, drain_timeout_s=0, **options) as running:
            await running.deliveries.get()


async def test_a_message_that_is_delivered_too_often_lapses(
    settings, wire, consuming, lapses, tell
):
    """On every version the first look at it is no suspicion."""
    await wire.publish(b"1", message_id="m-1")
    await kill_daemons(consuming, settings, 3)
    async with consuming(settings, ack, handle_lapsed=tell):
        lapse = await lapses.get()
    assert (lapse.lane, lapse.reason) == (Lane.INTERACTIVE, "delivery_limit")
    assert not lapse.is_suspect


async def test_the_lapsed_have_a_limit_of_their_own(settings, wire, consuming, until):
    """Whoever is killed by a lapsed job too is not killed for ever: it ends among the dead."""
    await wire.publish(b"1", expiration=0.01)
    await wire.until_ready(settings.queues.lapsed, 1)
    taken = 0

    async def take(_delivery) -> None:
        nonlocal taken
        taken += 1
        await asyncio.Event().wait()

    for count in (1, 2, 3):
        async with consuming(settings, ack, handle_lapsed=take, drain_timeout_s=0):
            await until(lambda count=count: taken == count)
    assert (await wire.next(settings.queues.dead)).body == b"1"
    assert taken == 3


async def test_a_rejected_message_lapses(settings, wire, consuming, lapses, tell):
    """What met a fault of the daemon's own is told of by another handler."""

    async def reject(delivery) -> None:
        await delivery.reject()

    async with consuming(settings, reject, handle_lapsed=tell):
        await wire.publish(b"1")
        assert (await lapses.get()).reason == "rejected"


async def test_a_copy_among_the_dead_keeps_the_brokers_history(
    settings, wire, consuming, publishing
):
    """The reason is ours, and the notes say when the broker gave it up."""
    async with publishing(settings) as publisher:

        async def bury(delivery) -> None:
            lapse = read_lapse(delivery.message, settings)
            await publisher.bury(lapse.message, DeliveryLimitError("look at the log"))
            await delivery.ack()

        await wire.publish(b"1", Lane.BATCH, expiration=0.01)
        async with consuming(settings, ack, handle_lapsed=bury):
            dead = await wire.next(settings.queues.dead)
    assert dead.headers["x-utterd-error-code"] == "delivery_limit"
    assert dead.headers["x-utterd-routing-key"] == "synthesize.batch"
    assert "x-death" not in dead.headers
    assert dead.headers["x-utterd-history"][0]["queue"] == settings.queues.batch


async def test_headers_that_fill_a_frame_stop_no_lapse(settings, wire, consuming, lapses, tell):
    """The broker's notes come on top, and whoever reads the lapsed goes on."""
    # With its properties, that is nearly a frame of 128 KiB.
    filling = {"filling": "x" * (128 * 1024 - 100)}
    await wire.publish(b"1", Lane.BATCH, expiration=0.01, headers=filling)
    async with consuming(settings, ack, handle_lapsed=tell):
        assert (await lapses.get()).message.body == b"1"
        await wire.publish(b"2", Lane.BATCH, expiration=0.01, message_id="m-2")
        # A daemon may take the second one before it lapses.
        await wire.until_ready(settings.queues.batch, 0)
