"""What every broker does with deliveries and events, be it memory or RabbitMQ."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID, uuid4

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from utterd.broker.connection import connect
from utterd.broker.consumer import Consumer
from utterd.broker.event import Event, EventSink
from utterd.broker.message import Delivery, History, Message
from utterd.broker.publisher import Publisher
from utterd.broker.topology import routing_key, topology
from utterd.config import BrokerSettings, Lane, QueueLimits
from utterd.environment import Environment
from utterd.errors import UnknownVoiceError
from utterd.interruptions import Interruptions
from utterd.testing.broker import InMemoryBroker, with_own_names
from utterd_schemas.events import EventType

REPLIES = "replies"
RETRY_DELAY_S = 1


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An event as a subscriber sees it."""

    id: UUID
    type: str
    subject: str
    data: bytes
    correlation_id: str | None
    traceparent: str | None


class Surroundings(Protocol):
    """A broker seen from outside the daemon."""

    @property
    def sink(self) -> EventSink: ...

    async def deliver(self, message: Message, lane: Lane) -> Delivery:
        """Publish a message and take it off its lane."""
        ...

    async def next_event(self) -> SeenEvent: ...

    async def next_reply(self) -> SeenEvent:
        """The next event in the queue `REPLIES`."""
        ...

    async def next_dead(self) -> tuple[bytes, str | None]:
        """Body and message id of the next job among the dead."""
        ...

    async def delivered_again(self) -> bytes:
        """The body of the next message that comes back after its settlement."""
        ...

    async def next_attempt(self) -> tuple[bytes, Lane, History]:
        """Body, lane and history of the next job that was postponed and comes back."""
        ...


class InMemory:
    def __init__(self) -> None:
        self.sink = InMemoryBroker()

    async def deliver(self, message: Message, lane: Lane) -> Delivery:
        return self.sink.deliver(message, lane)

    async def next_event(self) -> SeenEvent:
        return self._seen(self.sink.events.pop(0))

    async def next_reply(self) -> SeenEvent:
        queue, event = self.sink.replies.pop(0)
        assert queue == REPLIES
        return self._seen(event)

    async def next_dead(self) -> tuple[bytes, str | None]:
        message = self.sink.dead.pop(0).message
        return message.body, message.message_id

    async def delivered_again(self) -> bytes:
        return self.sink.released.pop(0).body

    async def next_attempt(self) -> tuple[bytes, Lane, History]:
        job = self.sink.postponed.pop(0)
        return job.message.body, job.lane, job.history

    @staticmethod
    def _seen(event: Event) -> SeenEvent:
        return SeenEvent(
            event.id,
            str(event.type),
            event.subject,
            event.data,
            event.correlation_id,
            event.trace.get("traceparent"),
        )


class Rabbit:
    def __init__(
        self,
        settings: BrokerSettings,
        channel: AbstractChannel,
        sink: Publisher,
        deliveries: asyncio.Queue[Delivery],
    ) -> None:
        self.sink = sink
        self._settings = settings
        self._channel = channel
        self._deliveries = deliveries

    async def deliver(self, message: Message, lane: Lane) -> Delivery:
        exchange = await self._channel.get_exchange(self._settings.exchanges.jobs)
        published = aio_pika.Message(
            message.body,
            message_id=message.message_id,
            correlation_id=message.correlation_id,
            reply_to=message.reply_to,
            content_type=message.content_type,
            content_encoding=message.content_encoding,
            priority=message.priority,
            expiration=message.expiration_s,
            timestamp=message.timestamp,
            headers=dict(message.headers),
        )
        await exchange.publish(published, routing_key(lane))
        return await self._deliveries.get()

    async def next_event(self) -> SeenEvent:
        return self._seen(await self._next(f"{self._settings.exchanges.events}.seen"))

    async def next_reply(self) -> SeenEvent:
        return self._seen(await self._next(REPLIES))

    async def next_dead(self) -> tuple[bytes, str | None]:
        dead = await self._next(self._settings.queues.dead)
        return dead.body, dead.message_id

    async def delivered_again(self) -> bytes:
        delivery = await self._deliveries.get()
        await delivery.ack()
        return delivery.message.body

    async def next_attempt(self) -> tuple[bytes, Lane, History]:
        delivery = await self._deliveries.get()
        await delivery.ack()
        return delivery.message.body, delivery.lane, delivery.message.history

    async def _next(self, queue_name: str) -> AbstractIncomingMessage:
        queue = await self._channel.get_queue(queue_name)
        async with queue.iterator() as messages:
            async for message in messages:
                await message.ack()
                return message
        raise AssertionError("the channel was closed")

    @staticmethod
    def _seen(message: AbstractIncomingMessage) -> SeenEvent:
        def header(name: str) -> str:
            return str(message.headers[f"cloudEvents_{name}"])

        traceparent = message.headers.get("traceparent")
        return SeenEvent(
            UUID(header("id")),
            header("type"),
            header("subject"),
            message.body,
            message.correlation_id,
            None if traceparent is None else str(traceparent),
        )


@asynccontextmanager
async def open_rabbit(amqp_url: str) -> AsyncIterator[Rabbit]:
    limits = QueueLimits(retry_delays_s=(RETRY_DELAY_S,))
    broker = BrokerSettings(url=amqp_url, limits=limits)
    settings = with_own_names(broker, f"test-{uuid4().hex[:12]}")
    deliveries: asyncio.Queue[Delivery] = asyncio.Queue()

    async def keep(delivery: Delivery) -> None:
        deliveries.put_nowait(delivery)

    stop = asyncio.Event()
    environment = Environment()
    publisher = Publisher(settings, environment)
    async with (
        asyncio.timeout(30),
        await connect(settings, "test") as connection,
        connection.channel() as channel,
        asyncio.TaskGroup() as tasks,
    ):
        await channel.set_qos(prefetch_count=1)
        consumer = Consumer(
            settings,
            prefetch=4,
            handle=keep,
            # What the broker gives up goes on to the dead.
            handle_lapsed=lambda delivery: delivery.reject(),
            tasks=tasks,
            environment=environment,
            interruptions=Interruptions(),
            drain_timeout_s=1,
        )
        consuming = tasks.create_task(consumer.run(stop), name="consumer")
        publishing = tasks.create_task(publisher.run(), name="publisher")
        await consumer.consuming.wait()
        events = await channel.declare_queue(
            f"{settings.exchanges.events}.seen", exclusive=True, auto_delete=False
        )
        await events.bind(settings.exchanges.events, "#")
        await channel.declare_queue(REPLIES, exclusive=True)
        try:
            yield Rabbit(settings, channel, publisher, deliveries)
        finally:
            stop.set()
            await consuming
            publishing.cancel()
            for queue in topology(settings).queues:
                await channel.queue_delete(queue.name)
            for exchange in topology(settings).exchanges:
                await channel.exchange_delete(exchange.name)


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.sandbox)])
async def broker(request) -> AsyncIterator[Surroundings]:
    if request.param == "memory":
        yield InMemory()
    else:
        async with open_rabbit(request.getfixturevalue("sandbox").amqp_url) as rabbit:
            yield rabbit


def make_event(kind: EventType = EventType.COMPLETED, **fields) -> Event:
    values = {
        "id": uuid4(),
        "source": "/test",
        "subject": "job-1",
        "time": datetime.now(UTC),
        "data": b'{"job_id": "job-1"}',
    }
    return Event(type=kind, **(values | fields))


MESSAGE = Message(
    body=b'{"text": "Hello."}',
    message_id="m-1",
    correlation_id="c-1",
    reply_to="r-1",
    content_type="application/json",
    content_encoding="gzip",
    priority=3,
    expiration_s=600.0,
    timestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    headers={"tenant": "a", "traceparent": "00-aa-bb-01", "number": 7},
)


@pytest.mark.parametrize("lane", list(Lane))
async def test_a_delivery_carries_its_message_and_lane(broker, lane):
    """Whatever the publisher set is there, unchanged."""
    delivery = await broker.deliver(MESSAGE, lane)
    assert delivery.lane is lane
    for name in (
        "body",
        "message_id",
        "correlation_id",
        "reply_to",
        "content_type",
        "content_encoding",
        "priority",
        "expiration_s",
        "timestamp",
        "headers",
        "history",
        "expires_at",
    ):
        assert getattr(delivery.message, name) == getattr(MESSAGE, name), name
    await delivery.ack()


async def test_a_bare_delivery_has_no_more_than_its_body(broker):
    """What the publisher left out is None, and an empty body is empty."""
    delivery = await broker.deliver(Message(body=b""), Lane.BATCH)
    message = delivery.message
    assert message.body == b""
    assert message.content_type is None
    assert message.reply_to is None
    assert message.expiration_s is None
    assert dict(message.headers) == {}
    await delivery.ack()


async def test_an_acked_delivery_is_done_with(broker):
    """It neither comes back nor lies among the dead: what follows is the next one."""
    await (await broker.deliver(Message(body=b"1"), Lane.BATCH)).ack()
    await (await broker.deliver(Message(body=b"2"), Lane.BATCH)).reject()
    await (await broker.deliver(Message(body=b"3"), Lane.BATCH)).release()
    assert (await broker.next_dead())[0] == b"2"
    assert await broker.delivered_again() == b"3"


async def test_a_rejected_delivery_lies_among_the_dead(broker):
    """The broker itself keeps what could not even be buried."""
    await (await broker.deliver(Message(body=b"1", message_id="m-1"), Lane.BATCH)).reject()
    assert await broker.next_dead() == (b"1", "m-1")


async def test_a_released_delivery_comes_back(broker):
    """What was not begun is somebody else's turn."""
    await (await broker.deliver(Message(body=b"1"), Lane.INTERACTIVE)).release()
    assert await broker.delivered_again() == b"1"


async def test_settlements_come_in_any_order(broker):
    """Deliveries in hand don't wait for each other."""
    first = await broker.deliver(Message(body=b"1"), Lane.BATCH)
    second = await broker.deliver(Message(body=b"2"), Lane.BATCH)
    await second.reject()
    await first.reject()
    assert [(await broker.next_dead())[0] for _ in range(2)] == [b"2", b"1"]


async def test_an_event_reaches_subscribers_as_it_was_sent(broker):
    """Id, type, subject, data, correlation and trace are what the sender said."""
    event = make_event(correlation_id="c-1", trace={"traceparent": "00-aa-bb-01"})
    await broker.sink.send(event)
    assert await broker.next_event() == SeenEvent(
        event.id, str(event.type), "job-1", event.data, "c-1", "00-aa-bb-01"
    )


async def test_events_keep_their_order(broker):
    """Whoever awaits each send sees them in that order."""
    events = [make_event(kind) for kind in (EventType.STARTED, EventType.COMPLETED)]
    for event in events:
        await broker.sink.send(event)
    assert [(await broker.next_event()).id for _ in events] == [event.id for event in events]


async def test_an_event_sent_twice_has_one_id(broker):
    """A repetition can be told by its id."""
    event = make_event()
    await broker.sink.send(event)
    await broker.sink.send(event)
    assert [(await broker.next_event()).id for _ in range(2)] == [event.id, event.id]


async def test_a_copy_of_terminal_events_goes_to_reply_to(broker):
    """The requester sees the outcome, and no event before it."""
    await broker.sink.send(make_event(EventType.STARTED, reply_to=REPLIES))
    outcome = make_event(EventType.FAILED, reply_to=REPLIES)
    await broker.sink.send(outcome)
    assert (await broker.next_reply()).id == outcome.id
    assert [(await broker.next_event()).type for _ in range(2)] == [
        EventType.STARTED,
        EventType.FAILED,
    ]


async def test_a_buried_job_lies_among_the_dead(broker):
    """Its copy keeps body and id; the delivery itself is still to be settled."""
    delivery = await broker.deliver(Message(body=b"1", message_id="m-1"), Lane.BATCH)
    await broker.sink.bury(delivery.message, UnknownVoiceError("choose another voice"))
    await delivery.ack()
    assert await broker.next_dead() == (b"1", "m-1")


@pytest.mark.parametrize("lane", list(Lane))
async def test_a_postponed_job_comes_back_by_its_lane(broker, lane):
    """As it was, with what its next attempt is to know; its delivery is still to be settled."""
    delivery = await broker.deliver(Message(body=b"1", message_id="m-1"), lane)
    history = History(attempt=2, worker_deaths=1)
    await broker.sink.postpone(delivery.message, lane, history, delay_s=RETRY_DELAY_S)
    await delivery.ack()
    assert await broker.next_attempt() == (b"1", lane, history)
