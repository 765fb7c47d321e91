"""Sends events, and buries dead jobs, on a connection of its own."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import cast

import structlog
from aio_pika import DeliveryMode
from aio_pika import Message as AmqpMessage
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.exceptions import DeliveryError
from aiormq.exceptions import ChannelAccessRefused
from pamqp import encode
from pamqp.common import FieldTable

from utterd.backoff import FullJitter
from utterd.broker.connection import BROKER_ERRORS, keep_connecting, losses_raised
from utterd.broker.event import Event
from utterd.broker.message import (
    ATTEMPT_HEADER,
    EXPIRES_AT_HEADER,
    WORKER_DEATHS_HEADER,
    History,
    Message,
)
from utterd.broker.topology import DEAD_ROUTING_KEY, retry_tier, routing_key
from utterd.config import BrokerSettings, Lane
from utterd.environment import Environment
from utterd.errors import BrokerUnavailableError, JobError, WorkerDiedError
from utterd.ops.metrics import Metrics
from utterd_schemas.events import CONTENT_TYPE

log = structlog.get_logger(__name__)

REASON_HEADER_PREFIX = "x-utterd-"

BROKERS_HISTORY_HEADERS = (
    "x-death",
    *(
        f"x-{end}-death-{fact}"
        for end in ("first", "last")
        for fact in ("exchange", "queue", "reason")
    ),
)

ENVIRONMENT_PART = "publishing"

# A frame holds 128 KiB; a stranger's headers may nearly fill one, and ours are to fit as well.
_MAX_FOREIGN_HEADER_BYTES = 64 * 1024


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
        queue, and the daemon can't wait for it to have room.
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
        await self._confirmed(self.settings.exchanges.events, event.type.routing_key, message)
        if event.reply_to and event.type.is_terminal:
            await self._confirmed("", event.reply_to, message, may_be_refused=True)

    async def bury(self, message: Message, error: JobError) -> None:
        """Put a copy among the dead, with the reason in its headers."""
        reason: FieldTable = {
            REASON_HEADER_PREFIX + "error-code": str(error.code),
            REASON_HEADER_PREFIX + "error-message": error.message,
            REASON_HEADER_PREFIX + "attempt": message.history.attempt,
            WORKER_DEATHS_HEADER: message.history.worker_deaths
            + isinstance(error, WorkerDiedError),
            REASON_HEADER_PREFIX + "routing-key": _first_routing_key(message),
            REASON_HEADER_PREFIX + "died-at": datetime.now(UTC).isoformat(),
        }
        exchange = self.settings.exchanges.dead
        await self._confirmed(exchange, DEAD_ROUTING_KEY, _copy(message, reason), mandatory=True)

    async def postpone(
        self, message: Message, lane: Lane, history: History, *, delay_s: int
    ) -> None:
        """Put a copy into the queue of a delay, from which the broker sends it back to its lane."""
        headers: FieldTable = {
            ATTEMPT_HEADER: history.attempt,
            WORKER_DEATHS_HEADER: history.worker_deaths,
            # At the end of the delay, the broker routes by this key as well.
            "CC": [routing_key(lane)],
        }
        if message.expires_at is not None:
            headers[EXPIRES_AT_HEADER] = message.expires_at.isoformat()
        copy = _copy(message, headers)
        for header in BROKERS_HISTORY_HEADERS:
            # The broker drops a message that it would expire into a queue where, as these tell,
            # it was before: a job that was dead and is sent back would end there.
            copy.headers.pop(header, None)
        exchange = self.settings.exchanges.retry
        await self._confirmed(exchange, retry_tier(delay_s), copy, mandatory=True)

    async def _confirmed(
        self,
        exchange: str,
        routing_key: str,
        message: AmqpMessage,
        *,
        mandatory: bool = False,
        may_be_refused: bool = False,
    ) -> None:
        failures, sending = 0, object()
        try:
            while fault := await self._fault_of_publish(
                exchange, routing_key, message, mandatory=mandatory
            ):
                if may_be_refused and isinstance(fault, DeliveryError | ChannelAccessRefused):
                    log.warning("publish_refused", exchange=exchange, reason=type(fault).__name__)
                    return
                failures += 1
                self._metrics.publish_failed(exchange)
                reason = str(fault) or type(fault).__name__
                log.warning(
                    "publish_failed",
                    exchange=exchange,
                    routing_key=routing_key,
                    failures=failures,
                    reason=reason,
                )
                self._stuck[sending] = f"nothing can be published to {exchange!r}: {reason:.200}"
                self._environment.report(ENVIRONMENT_PART, self._stuck[sending])
                await self._delays.wait(failures)
        finally:
            self._stuck.pop(sending, None)
        if not self._stuck:
            self._environment.clear(ENVIRONMENT_PART)

    async def _fault_of_publish(
        self, exchange: str, routing_key: str, message: AmqpMessage, *, mandatory: bool
    ) -> Exception | None:
        await self._open.wait()
        try:
            with losses_raised():
                await self._publish_once(exchange, routing_key, message, mandatory=mandatory)
        except BROKER_ERRORS as error:
            return error
        return None

    async def _publish_once(
        self, exchange: str, routing_key: str, message: AmqpMessage, *, mandatory: bool
    ) -> None:
        channel = self._channel
        if channel is None:
            raise ConnectionError("the channel was lost")
        target = (
            await channel.get_exchange(exchange, ensure=False)
            if exchange
            else channel.default_exchange
        )
        await target.publish(
            message,
            routing_key,
            mandatory=mandatory,
            timeout=self.settings.publish_timeout_s,
        )


def _first_routing_key(message: Message) -> str:
    """The key that the publisher used; after a delay, the message's own is the delay's name."""
    match message.headers.get("CC"):
        case [str(key)] if ATTEMPT_HEADER in message.headers:
            return key
        case _:
            return message.routing_key


def _copy(message: Message, headers: FieldTable) -> AmqpMessage:
    """A message as it came, with headers of ours."""
    return AmqpMessage(
        message.body,
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=message.message_id,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        timestamp=message.timestamp,
        headers=_foreign_headers(message) | headers,
    )


def _foreign_headers(message: Message) -> FieldTable:
    """The publisher's own headers, as far as they can be sent on.

    Left out are those that would make the table too large for a frame, and those that AMQP
    can carry but our library can't write, such as text that is not UTF-8.
    """
    kept: FieldTable = {}
    room_bytes = _MAX_FOREIGN_HEADER_BYTES
    for name, value in message.headers.items():
        header = cast("FieldTable", {name: value})
        try:
            size_bytes = len(encode.field_table(header))
        except (TypeError, ValueError, OverflowError):
            continue
        if size_bytes <= room_bytes:
            room_bytes -= size_bytes
            kept |= header
    return kept
