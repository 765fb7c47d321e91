"""The broker's side of the measurements: jobs to publish, and a bare consumer to compare with."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from aio_pika import DeliveryMode, Message
from aio_pika.abc import (
    AbstractConnection,
    AbstractExchange,
    AbstractIncomingMessage,
    AbstractQueue,
)

from utterd.broker.connection import connect
from utterd.broker.topology import routing_key, topology
from utterd.config import BrokerSettings, Lane
from utterd_schemas.events import CONTENT_TYPE, EventType
from utterd_schemas.job import Job

BARE_QUEUE = "bench.bare"
_UNCONFIRMED_AT_ONCE = 100


def job_message(job: Job) -> Message:
    return Message(
        job.model_dump_json(by_alias=True, exclude_unset=True).encode(),
        content_type=CONTENT_TYPE,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=job.job_id,
    )


async def publish_all(
    connection: AbstractConnection, exchange: str, key: str, messages: Iterable[Message]
) -> None:
    """Publish, and return when the broker has confirmed every message."""
    async with connection.channel() as channel:
        target = (
            await channel.get_exchange(exchange, ensure=False)
            if exchange
            else channel.default_exchange
        )
        gate = asyncio.Semaphore(_UNCONFIRMED_AT_ONCE)

        async def publish(message: Message) -> None:
            async with gate:
                await target.publish(message, key)

        async with asyncio.TaskGroup() as publishing:
            for message in messages:
                publishing.create_task(publish(message))


async def publish_jobs(
    connection: AbstractConnection, settings: BrokerSettings, jobs: Iterable[Job]
) -> None:
    """Put jobs into the batch lane."""
    await publish_all(
        connection, settings.exchanges.jobs, routing_key(Lane.BATCH), map(job_message, jobs)
    )


async def declare_bare_queue(connection: AbstractConnection, settings: BrokerSettings) -> None:
    """A queue with the type and the arguments of the daemon's own lanes, empty."""
    lane = settings.queues.of_lane(Lane.BATCH)
    (like,) = (queue for queue in topology(settings).queues if queue.name == lane)
    async with connection.channel() as channel:
        queue = await channel.declare_queue(
            BARE_QUEUE, durable=True, arguments=dict(like.arguments)
        )
        await queue.purge()


@asynccontextmanager
async def event_queue(
    connection: AbstractConnection, settings: BrokerSettings, *, max_length: int | None = None
) -> AsyncIterator[AbstractQueue]:
    """A subscriber's queue, as `utterd watch` makes it, for the length of the block."""
    arguments = {} if max_length is None else {"x-max-length": max_length}
    async with connection.channel() as channel:
        queue = await channel.declare_queue(exclusive=True, arguments=dict(arguments))
        await queue.bind(settings.exchanges.events, "#")
        yield queue


@asynccontextmanager
async def bare_ends(
    settings: BrokerSettings, *, prefetch: int
) -> AsyncIterator[tuple[AbstractQueue, AbstractExchange]]:
    """`BARE_QUEUE` and the exchange of the events, on two connections as the daemon has them."""
    async with (
        await connect(settings, "bench consumer") as receiving,
        await connect(settings, "bench publisher") as sending,
        receiving.channel() as inbound,
        sending.channel(on_return_raises=True) as outbound,
    ):
        exchange = await outbound.get_exchange(settings.exchanges.events, ensure=False)
        await inbound.set_qos(prefetch_count=prefetch, global_=False)
        queue = await inbound.get_queue(BARE_QUEUE, ensure=False)
        yield queue, exchange


async def announce_bare(
    exchange: AbstractExchange, incoming: AbstractIncomingMessage, kind: EventType, payload: bytes
) -> None:
    """Publish an event of a message, and return when it is confirmed."""
    event = Message(
        payload,
        content_type=CONTENT_TYPE,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=incoming.message_id,
        correlation_id=incoming.correlation_id,
        type=str(kind),
    )
    await exchange.publish(event, kind.routing_key, mandatory=False)


@asynccontextmanager
async def bare_consumer(
    settings: BrokerSettings,
    *,
    prefetch: int,
    payload: bytes,
    concurrent: bool = False,
    on_start: Callable[[], None] = lambda: None,
    on_done: Callable[[], None] = lambda: None,
) -> AsyncIterator[None]:
    """Answer each message of `BARE_QUEUE` with one confirmed event and an ack.

    Args:
        settings: which broker.
        prefetch: unsettled messages.
        payload: the events' data.
        concurrent: work on as many messages at once as the prefetch lets through, instead of on
            one after the other.
        on_start: told of each delivery.
        on_done: told of each settlement.
    """
    async with bare_ends(settings, prefetch=prefetch) as (queue, exchange):

        async def answer(incoming: AbstractIncomingMessage) -> None:
            on_start()
            await announce_bare(exchange, incoming, EventType.COMPLETED, payload)
            await incoming.ack()
            on_done()

        if concurrent:
            await queue.consume(answer)
            yield
            return
        async with queue.iterator() as messages, asyncio.TaskGroup() as group:

            async def loop() -> None:
                async for message in messages:
                    await answer(message)

            looping = group.create_task(loop())
            yield
            looping.cancel()
