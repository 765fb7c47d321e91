"""Takes jobs from the lanes and hands each to a task of the daemon's own."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack

import structlog
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage, AbstractQueueIterator

from utterd.backoff import FullJitter
from utterd.broker import declare
from utterd.broker.connection import BROKER_ERRORS, keep_connecting, losses_raised
from utterd.broker.message import Delivery, Message
from utterd.broker.topology import topology
from utterd.config import BrokerSettings, Lane
from utterd.lifecycle import unless_stopped

log = structlog.get_logger(__name__)

Handler = Callable[[Delivery], Coroutine[None, None, None]]


class AmqpDelivery:
    """A `Delivery` from RabbitMQ."""

    def __init__(self, incoming: AbstractIncomingMessage, lane: Lane) -> None:
        self._incoming = incoming
        self._lane = lane
        self._message = _message(incoming)

    @property
    def message(self) -> Message:
        return self._message

    @property
    def lane(self) -> Lane:
        return self._lane

    async def ack(self) -> None:
        await self._settle(self._incoming.ack())

    async def reject(self) -> None:
        await self._settle(self._incoming.reject(requeue=False))

    async def release(self) -> None:
        await self._settle(self._incoming.nack(requeue=True))

    async def _settle(self, settlement: Awaitable[None]) -> None:
        try:
            with losses_raised():
                await settlement
        except BROKER_ERRORS as error:
            log.warning("settlement_lost", lane=self._lane, reason=type(error).__name__)


def _message(incoming: AbstractIncomingMessage) -> Message:
    expiration = incoming.expiration
    return Message(
        body=incoming.body,
        routing_key=incoming.routing_key or "",
        message_id=incoming.message_id,
        correlation_id=incoming.correlation_id,
        reply_to=incoming.reply_to,
        content_type=incoming.content_type,
        content_encoding=incoming.content_encoding,
        priority=incoming.priority,
        expiration_s=expiration if isinstance(expiration, int | float) else None,
        timestamp=incoming.timestamp,
        headers=incoming.headers,
    )


class Consumer:
    """Consumes all lanes on one connection, each with a prefetch of its own.

    Args:
        settings: where, and under which names.
        prefetch: unsettled deliveries a lane; the number of engine slots.
        handle: what to do with a delivery; it must settle it.
        tasks: the group that the deliveries' tasks live in.
        drain_timeout_s: how long jobs in hand may take to finish after a stop.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        prefetch: int,
        handle: Handler,
        tasks: asyncio.TaskGroup,
        drain_timeout_s: float,
        delays: FullJitter | None = None,
    ) -> None:
        self._settings = settings
        self._prefetch = prefetch
        self._handle = handle
        self._tasks = tasks
        self._drain_timeout_s = drain_timeout_s
        self._in_hand: set[asyncio.Task[None]] = set()
        self._delays = delays or FullJitter(base_s=0.2, cap_s=settings.reconnect_cap_s)
        self.consuming = asyncio.Event()
        """Set while every lane has a consumer that the broker has confirmed."""

    async def run(self, stop: asyncio.Event) -> None:
        """Consume across outages until `stop` is set; then finish what is in hand.

        Raises:
            ConfigurationError: the broker's topology differs from the settings.
        """
        failures = 0
        try:
            while not stop.is_set():
                connecting = keep_connecting(self._settings, "utterd consumer", self._delays)
                connection = await unless_stopped(stop, connecting)
                if connection is None:
                    continue
                failures = 1 if await self._use(connection, stop) else failures + 1
                if not stop.is_set():
                    await unless_stopped(stop, self._delays.wait(failures))
        finally:
            for job in self._in_hand:
                job.cancel()

    async def _use(self, connection: AbstractConnection, stop: asyncio.Event) -> bool:
        """Consume on one connection for as long as it holds; returns whether it came to that."""
        consumed = False
        try:
            with losses_raised():
                async with connection:
                    prepare = declare.apply if self._settings.declare_topology else declare.check
                    await prepare(connection, topology(self._settings))
                    async with AsyncExitStack() as channels:
                        iterators = {
                            lane: await self._subscribe(connection, lane, channels) for lane in Lane
                        }
                        consumed = True
                        await self._read_lanes(iterators, stop)
                        if stop.is_set():
                            await self._drain()
        except BROKER_ERRORS as error:
            log.warning("consumer_lost", reason=str(error) or type(error).__name__)
        return consumed

    async def _subscribe(
        self, connection: AbstractConnection, lane: Lane, channels: AsyncExitStack
    ) -> AbstractQueueIterator:
        channel = connection.channel()
        await channel.initialize()
        channels.push_async_callback(channel.close)
        # Per consumer: a quorum queue's broker closes the connection at a global prefetch.
        await channel.set_qos(prefetch_count=self._prefetch, global_=False)
        queue = await channel.get_queue(self._settings.queues.of_lane(lane), ensure=False)
        iterator = queue.iterator()
        await iterator.consume()
        return iterator

    async def _read_lanes(
        self, iterators: dict[Lane, AbstractQueueIterator], stop: asyncio.Event
    ) -> None:
        """Take deliveries until one lane ends or `stop` is set."""
        async with asyncio.TaskGroup() as reading:
            self.consuming.set()
            log.info("consuming", prefetch=self._prefetch)
            watched = [
                reading.create_task(self._read(iterator, lane), name=f"lane-{lane}")
                for lane, iterator in iterators.items()
            ]
            watched.append(reading.create_task(_until(stop), name="stop"))
            try:
                await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.consuming.clear()
                for task in watched:
                    task.cancel()

    async def _read(self, iterator: AbstractQueueIterator, lane: Lane) -> None:
        try:
            with losses_raised():
                async for incoming in iterator:
                    self._begin(AmqpDelivery(incoming, lane))
        except BROKER_ERRORS as error:
            log.warning("lane_lost", lane=lane, reason=str(error) or type(error).__name__)

    def _begin(self, delivery: AmqpDelivery) -> None:
        # A task of our own: aio-pika cancels its callbacks when their channel closes, but a
        # lost channel shall cost a settlement and not the audio.
        job = self._tasks.create_task(self._handle(delivery), name=f"job-{delivery.lane}")
        self._in_hand.add(job)
        job.add_done_callback(self._in_hand.discard)

    async def _drain(self) -> None:
        """Wait for the jobs in hand while their channels are still open."""
        log.info("draining", jobs=len(self._in_hand))
        if self._in_hand:
            await asyncio.wait(self._in_hand, timeout=self._drain_timeout_s)


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()
