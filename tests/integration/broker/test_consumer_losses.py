import asyncio

import pytest
from pamqp import commands, frame
from pydantic import SecretStr

from utterd.backoff import FullJitter
from utterd.broker import amqp_delivery, consumer
from utterd.broker.connection import connect
from utterd.broker.consumer import ENVIRONMENT_PART
from utterd.config import Lane, QueueLimits
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


async def test_a_delivery_knows_that_it_is_lost(through_proxy, proxy, wire, consuming, until):
    """From the end of its channel on, and not before."""

    async def keep(_delivery) -> None:
        await asyncio.Event().wait()

    async with consuming(through_proxy, keep, prefetch=1, drain_timeout_s=0) as running:
        await wire.publish(b"1")
        delivery = await running.deliveries.get()
        assert not delivery.is_lost
        proxy.cut()
        await until(lambda: delivery.is_lost)


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


@pytest.mark.parametrize("lane", list(Lane))
async def test_a_deleted_queue_is_made_again(settings, wire, consuming, lane, until):
    """The broker cancels the consumer without closing anything; a live one takes its place."""
    async with consuming(settings, ack) as running:
        await wire.channel.queue_delete(settings.queues.of_lane(lane))
        await until(lambda: not running.consumer.consuming.is_set())
        await running.consumer.consuming.wait()
        for each in Lane:
            await wire.publish(b"1", each)
            assert (await running.deliveries.get()).lane is each


async def test_who_may_not_declare_waits_for_a_deleted_queue(settings, wire, consuming):
    """The daemon does not end: it says what it misses, and works when that is back."""
    checking = settings.model_copy(update={"declare_topology": False})
    async with consuming(checking, ack) as running:
        await wire.channel.queue_delete(settings.queues.batch)
        await running.environment.troubled.wait()
        assert settings.queues.batch in running.environment.faults[ENVIRONMENT_PART]
        assert not running.consumer.consuming.is_set()
        await wire.declare()
        await running.consumer.consuming.wait()
        assert running.environment.faults == {}
        await wire.publish(b"1", Lane.BATCH)
        await running.deliveries.get()


async def test_a_queue_that_came_back_as_another_is_waited_for(
    through_proxy, proxy, wire, consuming
):
    """Whoever made it differently has to put it right, and need not restart any daemon."""
    batch = through_proxy.queues.batch
    async with consuming(through_proxy, ack) as running:
        proxy.accepting = False
        proxy.cut()
        await wire.channel.queue_delete(batch)
        await wire.channel.declare_queue(batch, durable=True)
        proxy.accepting = True
        await running.environment.troubled.wait()
        assert batch in running.environment.faults[ENVIRONMENT_PART]
        await wire.channel.queue_delete(batch)
        await running.consumer.consuming.wait()
        assert running.environment.faults == {}


# From RabbitMQ 3.12 on the queue's own timeout counts, before it the node's. The settings allow no
# value as small as this.
class FirstHeld:
    """Acks each delivery; the first one only when the test says so."""

    def __init__(self):
        self.finished = asyncio.Event()
        self._first = True

    async def __call__(self, delivery):
        is_first, self._first = self._first, False
        if is_first:
            await self.finished.wait()
        await delivery.ack()


@pytest.mark.parametrize(
    "broker_limits", [QueueLimits().model_copy(update={"consumer_timeout_s": 1})], ids=["1 s"]
)
async def test_a_job_that_outlasts_the_consumer_timeout_comes_again(
    settings, wire, consuming, node_control
):
    """The broker closes the channel; another one takes the job, and its audio is ready by then."""
    handle = FirstHeld()
    async with node_control.impatient(1000), consuming(settings, handle, prefetch=1) as running:
        await wire.publish(b"slow")
        await running.deliveries.get()
        assert (await running.deliveries.get()).message.body == b"slow"
        handle.finished.set()
        await wire.publish(b"next")
        assert (await running.deliveries.get()).message.body == b"next"
    assert await wire.ready(settings.queues.interactive) == 0
    assert await wire.ready(settings.queues.dead) == 0


async def test_rabbitmq_4_3_cancels_the_consumer_of_a_job_that_takes_too_long(
    through_proxy, proxy, wire, consuming, management
):
    """Its channel stays open there, but a cancelled consumer would get nothing any more."""
    proxy.claims_4_3 = True
    handle = FirstHeld()
    async with consuming(through_proxy, handle, prefetch=1) as running:
        await wire.publish(b"slow")
        await running.deliveries.get()
        consumer = await management.consumer(through_proxy.queues.interactive)
        # As 4.3 tells of it to whoever announced the capability `consumer_cancel_notify`.
        cancel = commands.Basic.Cancel(consumer_tag=consumer["consumer_tag"], nowait=True)
        proxy.say(frame.marshal(cancel, consumer["channel_details"]["number"]))
        assert (await running.deliveries.get()).message.body == b"slow"
        handle.finished.set()
        await wire.publish(b"next")
        assert (await running.deliveries.get()).message.body == b"next"
    assert await wire.ready(through_proxy.queues.interactive) == 0


@pytest.mark.parametrize(
    "broker_limits", [QueueLimits().model_copy(update={"consumer_timeout_s": 2})], ids=["2 s"]
)
async def test_jobs_behind_others_do_not_time_out(
    settings, wire, consuming, node_control, broker_log
):
    """With as many deliveries as slots, none waits in our hand for longer than it works (M-17)."""
    done = 0
    all_done = asyncio.Event()

    async def work(delivery) -> None:
        nonlocal done
        await asyncio.sleep(0.4)  # as a slot that speaks
        await delivery.ack()
        done += 1
        if done == 8:
            all_done.set()

    async with node_control.impatient(2000), consuming(settings, work, prefetch=1):
        for number in range(8):
            await wire.publish(str(number).encode())
        await all_done.wait()
    assert "PRECONDITION_FAILED" not in await broker_log()
    assert await wire.ready(settings.queues.interactive) == 0


async def test_a_queue_that_may_not_be_read_is_tried_ever_more_seldom(
    settings, wire, consuming, restricted_user
):
    """A refused consumer is no busy loop; with the right to read, it works."""
    unable = await restricted_user(settings, "^test-", "^test-", "^$")
    slept_s = []
    turned_away = asyncio.Event()

    async def sleep(delay_s) -> None:
        slept_s.append(delay_s)
        if len(slept_s) >= 5:
            turned_away.set()

    delays = FullJitter(base_s=0.1, cap_s=30.0, uniform=max, sleep=sleep)
    checking = unable.model_copy(update={"declare_topology": False})
    async with consuming(checking, ack, delays=delays, until_consuming=False) as running:
        await turned_away.wait()
        assert slept_s[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]
        await restricted_user(settings, "^test-", "^test-", "^test-")
        await running.consumer.consuming.wait()
        await wire.publish(b"1")
        await running.deliveries.get()


async def test_a_stop_waits_for_no_broker_that_fell_silent(
    through_proxy, proxy, wire, consuming, monkeypatch
):
    """Long before the heartbeats tell that it is gone, the daemon has ended."""
    for module in (amqp_delivery, consumer):
        monkeypatch.setattr(module, "QUIET_TIMEOUT_S", 0.1)
    patient = through_proxy.model_copy(update={"heartbeat_s": 60})
    in_hand = asyncio.Event()

    async def never_end(_delivery) -> None:
        in_hand.set()
        await asyncio.Event().wait()

    async with consuming(patient, never_end, drain_timeout_s=3600) as running:
        await wire.publish(b"1")
        await in_hand.wait()
        proxy.silence()
        running.stop.set()
        await running.running
        proxy.speak()
    assert (await wire.next(through_proxy.queues.interactive)).body == b"1"
