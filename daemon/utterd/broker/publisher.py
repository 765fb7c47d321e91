"""Sends events, and buries dead jobs, on a connection of its own."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from aio_pika import DeliveryMode
from aio_pika import Message as AmqpMessage
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.exceptions import DeliveryError
from aiormq.exceptions import ChannelAccessRefused

from utterd.backoff import FullJitter
from utterd.broker.connection import BROKER_ERRORS, keep_connecting, losses_raised
from utterd.broker.copies import obituaries, postponed
from utterd.broker.event import Event
from utterd.broker.message import History, Message
from utterd.broker.refusal import blames_the_message, explained
from utterd.broker.topology import DEAD_ROUTING_KEY, is_own_queue, retry_tier
from utterd.config import BrokerSettings, Lane
from utterd.environment import Environment
from utterd.errors import BrokerUnavailableError, JobError
from utterd.ops.metrics import Metrics
from utterd_schemas.events import CONTENT_TYPE

log = structlog.get_logger(__name__)

ENVIRONMENT_PART = "publishing"

_REFUSALS = (DeliveryError, ChannelAccessRefused)

_UNLIMITED_FRAME_BYTES = 128 * 1024
"""Taken for the limit of a broker that has none."""

Copies = Callable[[int], Sequence[AmqpMessage]]
"""A message for frames of at most so many bytes: as it should be, and then with less and less, for
a broker that refuses the one before."""


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a message goes.

    Attributes:
        exchange: that it is published to.
        routing_key: under which.
        queue: that it is to reach, in words.
        use: of the exchange; see `explained`.
        mandatory: whether it must reach a queue.
        may_be_refused: whether it is given up when the broker refuses it.
    """

    exchange: str
    routing_key: str
    queue: str
    use: str
    mandatory: bool = False
    may_be_refused: bool = False


class Publisher:
    """An `EventSink` on RabbitMQ. `run` must be running while it is used.

    A message is sent again until the broker confirms it, across outages; ids make the
    repetition harmless.

    Attributes:
        settings: where, and under which names; the next connection uses what stands there then.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        environment: Environment,
        delays: FullJitter | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.settings = settings
        self._metrics = metrics or Metrics()
        self._connection: AbstractConnection | None = None
        self._environment = environment
        self._delays = delays or FullJitter(base_s=0.2, cap_s=settings.reconnect_cap_s)
        self._channel: AbstractChannel | None = None
        self._max_frame_bytes = _UNLIMITED_FRAME_BYTES
        self._open = asyncio.Event()
        # Why, for everything that is being sent again and again.
        self._stuck: dict[object, str] = {}

    async def run(self) -> None:
        """Keep a connection and a channel open until cancelled."""
        while True:
            connection = await keep_connecting(
                lambda: self.settings, "utterd publisher", self._delays, self._report
            )
            try:
                with losses_raised():
                    async with connection:
                        self._connection = connection
                        self._max_frame_bytes = _max_frame_bytes(connection)
                        await self._use(connection)
            except BROKER_ERRORS as error:
                log.warning("publisher_lost", reason=str(error) or type(error).__name__)
                await self._delays.wait(1)
            finally:
                self._connection = None

    def _report(self, fault: BaseException) -> None:
        """Take no jobs of which nothing could be told; the probe finds out when it is over."""
        reason = str(fault) or type(fault).__name__
        self._environment.report(ENVIRONMENT_PART, f"no event can be sent: {reason}")

    async def _use(self, connection: AbstractConnection) -> None:
        """Open a channel, and another whenever the broker closes it, until one can't be opened."""
        while True:
            try:
                # The broker may be gone without a word: then the channel would never be open.
                async with asyncio.timeout(self.settings.connect_timeout_s):
                    channel = await connection.channel(on_return_raises=True)
            except TimeoutError as silence:
                self._report(silence)
                raise
            self._channel = channel
            self._open.set()
            try:
                await channel.closed()
            finally:
                self._channel = None
                self._open.clear()

    async def probe(self) -> None:
        """Find out whether the exchanges are there that the daemon publishes to.

        Raises:
            BrokerUnavailableError: one is not, something is still being refused, or the broker
                does not answer. While there is no connection, it waits for one.
        """
        await self._open.wait()
        if self._stuck:
            # Whoever sends it again finds out more than a look at the exchanges.
            raise BrokerUnavailableError(next(iter(self._stuck.values())))
        channel = self._channel
        try:
            with losses_raised():
                if channel is None:
                    raise ConnectionError("the channel was lost")
                async with asyncio.timeout(self.settings.publish_timeout_s):
                    for exchange in self._targets:
                        await channel.declare_exchange(exchange, passive=True)
        except BROKER_ERRORS as error:
            raise BrokerUnavailableError(
                f"nothing can be published: {str(error) or type(error).__name__}. Declare what is"
                " missing with `utterd topology apply`"
            ) from error

    @property
    def _targets(self) -> tuple[str, ...]:
        exchanges = self.settings.exchanges
        return exchanges.events, exchanges.dead, exchanges.retry

    async def queue_depths(self, queues: Iterable[str]) -> Mapping[str, int]:
        """How many messages are ready in each queue; without those that the broker does not tell.

        On a channel of its own: the broker closes it when a queue is not there.
        """
        depths: dict[str, int] = {}
        try:
            with losses_raised():
                for name in queues:
                    if self._connection is None:
                        break
                    async with (
                        asyncio.timeout(self.settings.publish_timeout_s),
                        self._connection.channel() as channel,
                    ):
                        queue = await channel.declare_queue(name, passive=True)
                        depths[name] = queue.declaration_result.message_count or 0
        except BROKER_ERRORS as error:
            log.debug("queues_not_seen", reason=str(error) or type(error).__name__)
        return depths

    async def send(self, event: Event) -> None:
        """Send an event; returns when the broker has confirmed it, however long that takes.

        The copy to `reply_to` is given up when the broker refuses it: a stranger chose that
        queue, and the daemon can't wait for it to have room. No copy goes to a queue of utterd's
        own, where it would be taken for a job.
        """
        message = AmqpMessage(
            event.data,
            content_type=CONTENT_TYPE,
            delivery_mode=DeliveryMode.PERSISTENT,
            message_id=str(event.id),
            correlation_id=event.correlation_id,
            type=str(event.type),
            app_id="utterd",
            timestamp=event.time,
            headers=dict(event.headers()),
        )
        events = _Target(
            self.settings.exchanges.events,
            event.type.routing_key,
            f"a queue of {self.settings.exchanges.events!r}",
            "events",
        )
        await self._confirmed(events, lambda _: (message,))
        if not event.reply_to or not event.type.is_terminal:
            return
        if is_own_queue(event.reply_to, self.settings):
            log.warning("reply_to_own_queue_refused", job_id=event.subject)
            return
        reply = _Target("", event.reply_to, "the queue in reply_to", "events", may_be_refused=True)
        await self._confirmed(reply, lambda _: (message,))

    async def bury(self, message: Message, error: JobError) -> None:
        """Put a copy among the dead, with the reason in its headers."""
        died_at = datetime.now(UTC)
        target = _Target(
            self.settings.exchanges.dead,
            DEAD_ROUTING_KEY,
            f"the queue {self.settings.queues.dead}",
            "dead",
            mandatory=True,
        )
        await self._confirmed(
            target, lambda frame_bytes: obituaries(message, error, frame_bytes, died_at=died_at)
        )

    async def postpone(
        self, message: Message, lane: Lane, history: History, *, delay_s: int
    ) -> None:
        """Put a copy into the queue of a delay, from which the broker sends it back to its lane."""
        target = _Target(
            self.settings.exchanges.retry,
            retry_tier(delay_s),
            f"the queue {self.settings.queues.of_delay(delay_s)}",
            "retry",
            mandatory=True,
        )
        await self._confirmed(
            target, lambda frame_bytes: postponed(message, lane, history, frame_bytes)
        )

    async def _confirmed(self, target: _Target, copies: Copies) -> None:
        failures, thinned, sending = 0, 0, object()
        try:
            while True:
                await self._open.wait()
                choice = copies(self._max_frame_bytes)
                message = choice[min(thinned, len(choice) - 1)]
                fault = await self._fault_of_publish(target, message)
                if fault is None:
                    break
                if target.may_be_refused and isinstance(fault, _REFUSALS):
                    log.warning("publish_refused", reason=type(fault).__name__)
                    return
                if blames_the_message(fault) and thinned < len(choice) - 1:
                    # Nothing around the daemon is broken, and the next one has less to refuse.
                    thinned += 1
                    log.warning("copy_thinned", exchange=target.exchange, reason=str(fault)[:200])
                    continue
                failures += 1
                self._report_failure(target, fault, failures, sending)
                await self._delays.wait(failures)
        finally:
            self._stuck.pop(sending, None)
        if not self._stuck:
            self._environment.clear(ENVIRONMENT_PART)

    def _report_failure(
        self, target: _Target, fault: Exception, failures: int, sending: object
    ) -> None:
        self._metrics.publish_failed(target.exchange)
        reason = explained(fault, target.exchange, target.queue, target.use)
        log.warning(
            "publish_failed",
            exchange=target.exchange,
            routing_key=target.routing_key,
            failures=failures,
            reason=reason,
        )
        self._stuck[sending] = f"nothing can be published to {target.exchange!r}: {reason}"
        self._environment.report(ENVIRONMENT_PART, self._stuck[sending])

    async def _fault_of_publish(self, target: _Target, message: AmqpMessage) -> Exception | None:
        try:
            with losses_raised():
                await self._publish_once(target, message)
        except BROKER_ERRORS as error:
            return error
        return None

    async def _publish_once(self, to: _Target, message: AmqpMessage) -> None:
        channel = self._channel
        if channel is None:
            raise ConnectionError("the channel was lost")
        exchange = (
            await channel.get_exchange(to.exchange, ensure=False)
            if to.exchange
            else channel.default_exchange
        )
        await exchange.publish(
            message,
            to.routing_key,
            mandatory=to.mandatory,
            timeout=self.settings.publish_timeout_s,
        )


def _max_frame_bytes(connection: AbstractConnection) -> int:
    """The largest frame that the broker takes, as it was settled when we connected."""
    transport = connection.transport
    negotiated = transport.connection.connection_tune.frame_max if transport else 0
    return negotiated or _UNLIMITED_FRAME_BYTES
