import asyncio
import re

import aio_pika
import pytest
from aio_pika.exceptions import DeliveryError

from utterd.backoff import FullJitter
from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.message import Message
from utterd.broker.publisher import ENVIRONMENT_PART
from utterd.broker.topology import topology
from utterd.environment import Environment
from utterd.errors import BrokerUnavailableError, UnknownVoiceError

pytestmark = pytest.mark.sandbox


class Delays:
    """Back-off that takes no time and tells how long it would have taken."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []
        self.over = asyncio.Event()
        self.over.set()
        self._changed = asyncio.Condition()
        self.back_off = FullJitter(base_s=0.1, cap_s=3.2, uniform=max, sleep=self._sleep)

    async def _sleep(self, delay_s: float) -> None:
        async with self._changed:
            self.slept_s.append(delay_s)
            self._changed.notify_all()
        await self.over.wait()
        # Others must have their turn, as during every real wait.
        await asyncio.sleep(0)

    async def count(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.slept_s) >= count)


async def test_send_returns_when_the_broker_has_confirmed(
    through_proxy, proxy, wire, publishing, make_event
):
    """That the event has arrived is not enough: the broker must have said so."""
    queue = await wire.subscribe()
    async with publishing(through_proxy) as publisher, asyncio.TaskGroup() as sending:
        await publisher.send(make_event(data=b"1"))
        await wire.next(queue)
        proxy.silence()
        task = sending.create_task(publisher.send(make_event(data=b"2")))
        assert (await wire.next(queue)).body == b"2"
        assert not task.done()
        proxy.speak()
        await task


async def test_an_event_without_its_confirm_is_sent_again_with_the_same_id(
    through_proxy, proxy, wire, publishing, make_event
):
    """A connection that dies before the confirm may repeat the event, and never lose it."""
    queue = await wire.subscribe()
    event = make_event()
    async with publishing(through_proxy) as publisher, asyncio.TaskGroup() as sending:
        await publisher.send(make_event())
        await wire.next(queue)
        proxy.silence()
        sending.create_task(publisher.send(event))
        first = await wire.next(queue)
        proxy.cut()
        proxy.speak()
    second = await wire.next(queue)
    assert first.message_id == second.message_id == str(event.id)


async def test_a_broker_that_never_confirms_is_asked_again(
    through_proxy, proxy, wire, publishing, make_event
):
    """Each publish has a deadline, and another one follows it."""
    hasty = through_proxy.model_copy(update={"publish_timeout_s": 0.1})
    queue = await wire.subscribe()
    async with publishing(hasty) as publisher, asyncio.TaskGroup() as sending:
        await publisher.send(make_event())
        await wire.next(queue)
        proxy.silence()
        sending.create_task(publisher.send(make_event()))
        first, second = [(await wire.next(queue)).message_id for _ in range(2)]
        assert first == second
        proxy.speak()


async def test_whoever_gives_up_waiting_is_let_go(through_proxy, proxy, publishing, make_event):
    """A cancelled send ends; only the connection's own cancellations mean a retry."""
    async with publishing(through_proxy) as publisher:
        await publisher.send(make_event())
        proxy.silence()
        sending = asyncio.ensure_future(publisher.send(make_event()))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await sending
        assert sending.cancelled()
        proxy.speak()
        await publisher.send(make_event())


async def test_a_job_is_not_acked_before_its_event_has_an_exchange(
    settings, wire, consuming, publishing, make_event
):
    """With the event exchange gone the job waits; with it back, event and ack follow."""
    delays = Delays()
    async with publishing(settings, delays.back_off) as publisher:

        async def handle(delivery) -> None:
            await publisher.send(make_event(data=delivery.message.body))
            await delivery.ack()

        async with consuming(settings, handle, prefetch=1) as running:
            await wire.channel.exchange_delete(settings.exchanges.events)
            await wire.publish(b"1")
            await wire.publish(b"2")
            await running.deliveries.get()
            await delays.count(4)
            assert delays.slept_s[:4] == [0.1, 0.2, 0.4, 0.8]
            # One prefetched and not acked: the other one still waits.
            assert await wire.ready(settings.queues.interactive) == 1
            assert running.consumer.consuming.is_set()
            delays.over.clear()
            await delays.count(5)
            async with await connect(settings, "repair") as connection:
                await declare.apply(connection, topology(settings))
            queue = await wire.subscribe()
            delays.over.set()
            assert [(await wire.next(queue)).body for _ in range(2)] == [b"1", b"2"]
    assert await wire.ready(settings.queues.interactive) == 0


async def test_an_event_that_a_full_queue_refuses_is_tried_again_with_growing_waits(
    settings, wire, publishing, make_event
):
    """No busy loop while a subscriber's queue is full, and no lost event when it drains."""
    queue = await wire.subscribe("#", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    delays = Delays()
    async with publishing(settings, delays.back_off) as publisher, asyncio.TaskGroup() as sending:
        await publisher.send(make_event(data=b"1"))
        sending.create_task(publisher.send(make_event(data=b"2")))
        await delays.count(7)
        assert (await wire.next(queue)).body == b"1"
    assert delays.slept_s[:7] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2]
    assert (await wire.next(queue)).body == b"2"


async def test_a_job_is_buried_only_where_the_dead_lie(settings, wire, publishing):
    """Without its queue the dead letter would vanish, so it waits until the queue is back."""
    delays = Delays()
    async with publishing(settings, delays.back_off) as publisher, asyncio.TaskGroup() as burying:
        await wire.channel.queue_delete(settings.queues.dead)
        message = Message(body=b"1")
        burying.create_task(publisher.bury(message, UnknownVoiceError("choose another voice")))
        await delays.count(2)
        async with await connect(settings, "repair") as connection:
            await declare.apply(connection, topology(settings))
    assert (await wire.next(settings.queues.dead)).body == b"1"


@pytest.fixture
async def full_dead(settings, wire, management):
    """A policy lets one job lie among the dead, and there is one."""
    name = f"full-{settings.queues.dead}"
    policy = {
        "pattern": f"^{re.escape(settings.queues.dead)}$",
        "definition": {"max-length": 1, "overflow": "reject-publish"},
        "apply-to": "queues",
    }
    await management.request("PUT", "policies", "/", name, body=policy)
    while True:
        # The policy comes into force some time later, and a queue may be one over its limit.
        try:
            await wire.channel.default_exchange.publish(
                aio_pika.Message(b"0"), settings.queues.dead
            )
        except DeliveryError:
            break
    yield
    await management.request("DELETE", "policies", "/", name)


@pytest.mark.usefixtures("full_dead")
async def test_a_full_queue_of_the_dead_is_named_with_what_to_do(settings, wire, publishing):
    """The daemon pauses, and its reason is a sentence for whoever has to make room."""
    environment = Environment()
    async with publishing(settings, environment=environment) as publisher, asyncio.TaskGroup() as t:
        burying = publisher.bury(Message(body=b"1"), UnknownVoiceError("choose another voice"))
        t.create_task(burying)
        await environment.troubled.wait()
        reason = environment.faults[ENVIRONMENT_PART]
        assert f"the queue {settings.queues.dead} takes no more" in reason
        assert "`utterd dead list`" in reason
        queue = await wire.channel.get_queue(settings.queues.dead)
        await queue.purge()
    assert environment.sound.is_set()
    assert (await wire.next(settings.queues.dead)).body == b"1"


async def test_a_missing_queue_of_the_dead_is_named_with_what_to_do(settings, wire, publishing):
    """The pause tells which queue it is, and how it comes back."""
    environment = Environment()
    async with publishing(settings, environment=environment) as publisher, asyncio.TaskGroup() as t:
        await wire.channel.queue_delete(settings.queues.dead)
        burying = publisher.bury(Message(body=b"1"), UnknownVoiceError("choose another voice"))
        t.create_task(burying)
        await environment.troubled.wait()
        reason = environment.faults[ENVIRONMENT_PART]
        assert f"the queue {settings.queues.dead} is missing" in reason
        assert "`utterd topology apply`" in reason
        await wire.declare()
    assert environment.sound.is_set()


@pytest.mark.parametrize("position_bytes", range(500, 850, 25))
async def test_survives_a_cut_at_any_point(
    through_proxy, proxy, wire, publishing, make_event, position_bytes
):
    """Wherever its first connection breaks off, the publisher gets another and sends."""
    queue = await wire.subscribe()
    proxy.cut_after_bytes = position_bytes
    bodies = [str(number).encode() for number in range(5)]
    async with publishing(through_proxy) as publisher:
        for body in bodies:
            await publisher.send(make_event(data=body))
    arrived = []
    while len(set(arrived)) < len(bodies):
        arrived.append((await wire.next(queue)).body)
    assert list(dict.fromkeys(arrived)) == bodies


async def test_a_connection_closed_by_hand_is_replaced(
    settings, wire, publishing, make_event, management
):
    """An operator who closes the connection costs nothing but the time to reconnect."""
    queue = await wire.subscribe()
    async with publishing(settings) as publisher:
        await publisher.send(make_event(data=b"1"))
        await management.close_connections("utterd publisher")
        await publisher.send(make_event(data=b"2"))
    assert [(await wire.next(queue)).body for _ in range(2)] == [b"1", b"2"]


async def test_a_missing_event_exchange_pauses_the_daemon(
    settings, wire, consuming, publishing, make_event
):
    """Jobs go back, the status says why, and all resumes by itself when it is there again."""
    environment, delays = Environment(), Delays()
    delays.over.clear()
    probing = FullJitter(base_s=0.02, cap_s=0.1)
    async with (
        publishing(settings, delays.back_off, environment) as publisher,
        asyncio.TaskGroup() as tasks,
    ):

        async def handle(delivery) -> None:
            await publisher.send(make_event(data=delivery.message.body))
            await delivery.ack()

        watch = environment.watch(ENVIRONMENT_PART, publisher.probe, probing)
        watching = tasks.create_task(watch)
        async with consuming(settings, handle, prefetch=1, environment=environment) as running:
            await wire.channel.exchange_delete(settings.exchanges.events)
            for body in (b"1", b"2"):
                await wire.publish(body)
            await environment.troubled.wait()
            assert settings.exchanges.events in environment.faults[ENVIRONMENT_PART]
            # The first one is being announced; the second one is not taken.
            await wire.until_ready(settings.queues.interactive, 1)
            assert not running.consumer.consuming.is_set()
            await wire.declare()
            queue = await wire.subscribe()
            delays.over.set()
            assert [(await wire.next(queue)).body for _ in range(2)] == [b"1", b"2"]
            assert environment.sound.is_set()
        watching.cancel()
    assert await wire.ready(settings.queues.interactive) == 0


@pytest.mark.parametrize("name", ["events", "dead", "retry"])
async def test_a_probe_misses_any_exchange_that_is_published_to(settings, wire, publishing, name):
    """Each has its jobs that can't be settled without it."""
    async with publishing(settings) as publisher:
        await publisher.probe()
        exchange = getattr(settings.exchanges, name)
        await wire.channel.exchange_delete(exchange)
        with pytest.raises(BrokerUnavailableError, match=exchange):
            await publisher.probe()
        await wire.declare()
        await publisher.probe()


async def test_a_probe_of_a_silent_broker_ends(through_proxy, proxy, publishing, make_event):
    """Its deadline is that of a publish."""
    hasty = through_proxy.model_copy(update={"publish_timeout_s": 0.1})
    async with publishing(hasty) as publisher:
        await publisher.send(make_event())
        proxy.silence()
        with pytest.raises(BrokerUnavailableError, match="TimeoutError"):
            await publisher.probe()
        proxy.speak()
        await publisher.send(make_event())
        await publisher.probe()


async def test_one_success_hides_no_failure(settings, wire, publishing, make_event):
    """While a dead job finds no queue, events that go through do not end the pause."""
    environment, delays = Environment(), Delays()
    async with (
        publishing(settings, delays.back_off, environment) as publisher,
        asyncio.TaskGroup() as burying,
    ):
        await wire.channel.queue_delete(settings.queues.dead)
        error = UnknownVoiceError("choose another voice")
        burying.create_task(publisher.bury(Message(body=b"1"), error))
        await environment.troubled.wait()
        await publisher.send(make_event())
        assert environment.troubled.is_set()
        with pytest.raises(BrokerUnavailableError, match=settings.exchanges.dead):
            await publisher.probe()
        await wire.declare()
        await environment.sound.wait()


async def test_whoever_gives_up_leaves_no_failure_behind(settings, wire, publishing, make_event):
    """What nobody sends any more can't keep the daemon paused."""
    environment = Environment()
    async with publishing(settings, environment=environment) as publisher:
        await wire.channel.exchange_delete(settings.exchanges.events)
        sending = asyncio.ensure_future(publisher.send(make_event()))
        await environment.troubled.wait()
        sending.cancel()
        await asyncio.wait([sending])
        await wire.declare()
        await publisher.probe()
        await publisher.send(make_event())
        assert environment.sound.is_set()


async def test_a_memory_alarm_pauses_the_daemon(
    settings, wire, consuming, publishing, make_event, node_control
):
    """The broker reads no publisher then; afterwards each event is there and each job acked."""
    hasty = settings.model_copy(update={"publish_timeout_s": 0.5})
    environment = Environment()
    environment.report("store", "not asked yet")
    queue = await wire.subscribe()
    bodies = {b"1", b"2", b"3"}
    for body in bodies:
        await wire.publish(body)

    async def handle(delivery) -> None:
        await publisher.send(make_event(data=delivery.message.body))
        await delivery.ack()

    async with (
        publishing(hasty, environment=environment) as publisher,
        consuming(
            hasty, handle, prefetch=1, environment=environment, until_consuming=False
        ) as running,
    ):
        await publisher.probe()
        async with node_control.memory_alarm():
            environment.clear("store")
            await running.deliveries.get()
            await environment.troubled.wait()
            assert set(environment.faults) == {ENVIRONMENT_PART}
            await wire.until_ready(settings.queues.interactive, 2)
            assert not running.consumer.consuming.is_set()
        arrived = set()
        while arrived != bodies:
            arrived.add((await wire.next(queue)).body)
    assert await wire.ready(settings.queues.interactive) == 0


async def test_a_publisher_without_a_connection_pauses_the_consumer(
    settings, through_proxy, proxy, wire, consuming, publishing, until
):
    """A daemon that could tell of no job takes none, says why, and resumes by itself."""

    async def ack(delivery) -> None:
        await delivery.ack()

    environment = Environment()
    probing = FullJitter(base_s=0.01, cap_s=0.01)
    proxy.accepting = False
    async with (
        publishing(through_proxy, environment=environment) as publisher,
        consuming(settings, ack, environment=environment, until_consuming=False) as running,
        asyncio.TaskGroup() as tasks,
    ):
        watching = tasks.create_task(
            environment.watch(ENVIRONMENT_PART, publisher.probe, probing), name="watch"
        )
        await environment.troubled.wait()
        assert "can't be used" in environment.faults[ENVIRONMENT_PART]
        await wire.publish(b"1")
        await wire.until_ready(settings.queues.interactive, 1)
        proxy.accepting = True
        assert (await running.deliveries.get()).message.body == b"1"
        assert environment.faults == {}
        proxy.accepting = False
        proxy.cut()
        await environment.troubled.wait()
        await until(lambda: not running.consumer.consuming.is_set())
        proxy.accepting = True
        await running.consumer.consuming.wait()
        watching.cancel()
