"""Takes jobs from the lanes and hands each to a task of the daemon's own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractQueueIterator,
)
from aiormq.exceptions import ChannelAccessRefused

from utterd.backoff import FullJitter
from utterd.broker import declare
from utterd.broker.amqp_delivery import AmqpDelivery
from utterd.broker.connection import BROKER_ERRORS, keep_connecting, losses_raised
from utterd.broker.control import keep_bound, listen
from utterd.broker.hold_off import HoldOff
from utterd.broker.message import Delivery
from utterd.broker.topology import topology
from utterd.broker.version import counts_nacks, version_of
from utterd.config import BrokerSettings, Lane
from utterd.environment import Environment
from utterd.errors import ConfigurationError
from utterd.interruptions import Interruptions
from utterd.lifecycle import first_of, unless_stopped
from utterd.ops.metrics import Metrics

log = structlog.get_logger(__name__)

QUIET_TIMEOUT_S = 5.0

ORDER_CHECKS = FullJitter(base_s=10.0, cap_s=10.0)

ENVIRONMENT_PART = "topology"
"""The name in the environment of what the daemon found when it came, and misses now."""

Handler = Callable[[Delivery], Coroutine[None, None, None]]


class Consumer:
    """Consumes the lanes and the lapsed on one connection, each with a prefetch of its own.

    Args:
        settings: where, and under which names.
        prefetch: unsettled deliveries a lane; the number of engine slots.
        handle: what to do with a delivery; it must settle it.
        handle_lapsed: the same, of a job that the broker gave up.
        tasks: the group that the deliveries' tasks live in.
        environment: while it is troubled, nothing is taken.
        interruptions: by which jobs are called off and handed back.
        drain_timeout_s: how long jobs in hand may take to finish after a stop.
        delays: waits between attempts to connect.
        hold_off: the wait before jobs are taken again that were only taken to go back.
        order_checks: waits between two looks whether orders can still be heard.
        consuming: set while every queue has a consumer that the broker has confirmed.
        metrics: counts the losses.
    """

    def __init__(  # noqa: PLR0913 - one argument a part
        self,
        settings: BrokerSettings,
        *,
        prefetch: int,
        handle: Handler,
        handle_lapsed: Handler,
        tasks: asyncio.TaskGroup,
        environment: Environment,
        interruptions: Interruptions,
        drain_timeout_s: float,
        consuming: asyncio.Event | None = None,
        metrics: Metrics | None = None,
        delays: FullJitter | None = None,
        hold_off: HoldOff | None = None,
        order_checks: FullJitter = ORDER_CHECKS,
    ) -> None:
        self.settings = settings
        self._intakes = (
            *(
                _Intake(str(lane), settings.queues.of_lane(lane), prefetch, handle, lane)
                for lane in Lane
            ),
            # One by one: a job that kills daemons takes no other with it. Its message tells the
            # lane that it came by.
            _Intake("lapsed", settings.queues.lapsed, 1, handle_lapsed, Lane.BATCH),
        )
        self._tasks = tasks
        self._environment = environment
        self._interruptions = interruptions
        self._drain_timeout_s = drain_timeout_s
        self._metrics = metrics or Metrics()
        self._in_hand: set[asyncio.Task[None]] = set()
        self._hold_off = hold_off or HoldOff()
        self._order_checks = order_checks
        self._delays = delays or FullJitter(base_s=0.2, cap_s=settings.reconnect_cap_s)
        self.consuming = consuming or asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._subscriptions = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Consume across outages until `stop` is set; then finish what is in hand.

        Raises:
            ConfigurationError: at the start, the broker's topology differs from the settings.
        """
        failures = 0
        try:
            while not stop.is_set():
                connecting = keep_connecting(lambda: self.settings, "utterd consumer", self._delays)
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
        subscriptions_before = self._subscriptions
        try:
            with losses_raised():
                async with connection:
                    await self._prepare(connection)
                    # The channels end with their connection.
                    channels = {
                        one: await self._open_channel(connection, one.prefetch)
                        for one in self._intakes
                    }
                    async with self._hearing(await self._open_channel(connection)) as orders:
                        nacks_count = counts_nacks(version_of(connection))
                        await self._consume(channels, orders, stop, nacks_count=nacks_count)
                        if stop.is_set():
                            await self._drain()
        except BROKER_ERRORS as error:
            log.warning("consumer_lost", reason=str(error) or type(error).__name__)
            self._metrics.consumer_lost("connection")
        except ConfigurationError as error:
            if not self._subscriptions:
                raise
            # It was right before: whoever took a queue away is likely to bring it back.
            self._environment.report(ENVIRONMENT_PART, str(error))
        return self._subscriptions > subscriptions_before

    async def _prepare(self, connection: AbstractConnection) -> None:
        prepare = declare.apply if self.settings.declare_topology else declare.check
        await prepare(connection, topology(self.settings))
        self._environment.clear(ENVIRONMENT_PART)

    async def _open_channel(self, connection: AbstractConnection, prefetch: int = 1) -> "_Channel":
        channel = await connection.channel()
        # Per consumer: a quorum queue's broker closes the connection at a global prefetch.
        await channel.set_qos(prefetch_count=prefetch, global_=False)
        cancelled, lost = asyncio.Event(), asyncio.Event()

        def cancel(_frame: object) -> None:
            cancelled.set()
            lost.set()

        underlay = await channel.get_underlay_channel()
        # A deleted queue, or a broker that moves its leader, cancels consumers silently.
        underlay.on_consumer_cancel_callbacks.add(cancel)
        channel.close_callbacks.add(lambda *_: lost.set())
        return _Channel(channel, cancelled, lost)

    @asynccontextmanager
    async def _hearing(self, orders: "_Channel") -> AsyncIterator[tuple["_Channel", ...]]:
        """Obey orders in this block; gives the channel to watch, where orders can be heard."""
        try:
            queue = await listen(orders.channel, self.settings, self._interruptions.cancel)
        except ChannelAccessRefused as error:
            # Jobs can be done all the same.
            log.warning("orders_not_heard", reason=str(error))
            yield ()
            return
        bound = keep_bound(queue, self.settings, self._order_checks)
        binding = self._tasks.create_task(bound, name="orders-bound")
        try:
            yield (orders,)
        finally:
            binding.cancel()

    async def _consume(
        self,
        channels: Mapping["_Intake", "_Channel"],
        orders: tuple["_Channel", ...],
        stop: asyncio.Event,
        *,
        nacks_count: bool,
    ) -> None:
        """Take deliveries, with pauses while the environment is troubled, until one is lost."""
        watched = (*channels.values(), *orders)
        while await self._until_steady(watched, stop):
            self._quiet.clear()
            lost = True
            try:
                async with AsyncExitStack() as subscriptions:
                    readers = {
                        intake: await self._subscribe(one.channel, intake, subscriptions)
                        for intake, one in channels.items()
                    }
                    self._subscriptions += 1
                    lost = await self._read_all(readers, watched, stop)
            finally:
                self._quiet.set()
                self._hold_off.ended(returns_count=lost or nacks_count)
            if lost:
                by_broker = any(one.cancelled.is_set() for one in watched)
                self._metrics.consumer_lost("cancelled" if by_broker else "channel")
                return
            self._interruptions.hand_back()

    async def _until_steady(self, watched: Sequence["_Channel"], stop: asyncio.Event) -> bool:
        """Wait until all is well, and has been for as long as there is reason to doubt it.

        False at a stop, or when a channel is lost first.
        """
        delay_s = self._hold_off.delay_s()
        while await self._first_of(watched, stop, self._environment.sound):
            if not delay_s:
                return True
            log.info("holding_off", delay_s=round(delay_s, 1), fruitless=self._hold_off.fruitless)
            holding = asyncio.ensure_future(self._hold_off.sleep(delay_s))
            try:
                if not await self._first_of(watched, stop, self._environment.troubled, holding):
                    return False
                if holding.done():
                    return True
            finally:
                holding.cancel()
        return False

    async def _first_of(
        self,
        watched: Sequence["_Channel"],
        stop: asyncio.Event,
        *awaited: asyncio.Event | asyncio.Future[None],
    ) -> bool:
        """Wait for any of these; False at a stop, or when a channel is lost first."""
        first = await first_of(stop, *(one.lost for one in watched), *awaited)
        return first <= set(awaited)

    async def _subscribe(
        self, channel: AbstractChannel, intake: "_Intake", subscriptions: AsyncExitStack
    ) -> AbstractQueueIterator:
        queue = await channel.get_queue(intake.queue, ensure=False)
        return await subscriptions.enter_async_context(queue.iterator())

    async def _read_all(
        self,
        iterators: Mapping["_Intake", AbstractQueueIterator],
        watched: Sequence["_Channel"],
        stop: asyncio.Event,
    ) -> bool:
        """Take deliveries until told to stop or to pause; True when one is lost instead."""
        async with asyncio.timeout(None) as ending, asyncio.TaskGroup() as reading:
            self.consuming.set()
            log.info("consuming", prefetch={one.name: one.prefetch for one in iterators})
            readers = [
                reading.create_task(self._read(iterator, intake), name=f"reader-{intake.name}")
                for intake, iterator in iterators.items()
            ]
            try:
                losses = (one.lost for one in watched)
                first = await first_of(stop, self._environment.troubled, *losses, *readers)
            finally:
                self.consuming.clear()
                for reader in readers:
                    reader.cancel()
                # A reader ends when the broker has confirmed it, and a stop can't wait for one
                # that has fallen silent.
                ending.reschedule(asyncio.get_running_loop().time() + QUIET_TIMEOUT_S)
        return not {stop, self._environment.troubled} & first

    async def _read(self, iterator: AbstractQueueIterator, intake: "_Intake") -> None:
        try:
            with losses_raised():
                async for incoming in iterator:
                    self._hold_off.took()
                    delivery = AmqpDelivery(
                        incoming, intake.lane, self._quiet, self._hold_off.acked
                    )
                    self._begin(delivery, intake)
        # A group comes from messages that could not be given back, for the channel is gone.
        except (*BROKER_ERRORS, ExceptionGroup) as error:
            log.warning("queue_lost", queue=intake.queue, reason=str(error) or type(error).__name__)

    def _begin(self, delivery: AmqpDelivery, intake: "_Intake") -> None:
        # A task of our own: aio-pika cancels its callbacks when their channel closes, but a
        # lost channel shall cost a settlement and not the audio.
        job = self._tasks.create_task(intake.handle(delivery), name=f"job-{intake.name}")
        self._in_hand.add(job)
        job.add_done_callback(self._in_hand.discard)

    async def _drain(self) -> None:
        """Give back what has not begun, and wait for the rest while its channels are open."""
        self._interruptions.hand_back()
        log.info("draining", jobs=len(self._in_hand))
        if self._in_hand:
            await asyncio.wait(self._in_hand, timeout=self._drain_timeout_s)


@dataclass(frozen=True, slots=True)
class _Intake:
    """One queue that is consumed, and what becomes of its messages."""

    name: str
    queue: str
    prefetch: int
    handle: Handler
    lane: Lane


@dataclass(frozen=True, slots=True)
class _Channel:
    """A channel for one consumer.

    Attributes:
        channel: open.
        cancelled: set when the broker has cancelled the consumer.
        lost: set then, and when the channel is closed.
    """

    channel: AbstractChannel
    cancelled: asyncio.Event
    lost: asyncio.Event
