"""Sends events, and buries dead jobs, on a connection of its own."""

import asyncio
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
from utterd.broker.message import Message
from utterd.broker.topology import DEAD_ROUTING_KEY
from utterd.config import BrokerSettings
from utterd.errors import JobError
from utterd_schemas.events import CONTENT_TYPE

log = structlog.get_logger(__name__)

REASON_HEADER_PREFIX = "x-utterd-"

# A frame holds 128 KiB; a stranger's headers may nearly fill one, and ours are to fit as well.
_MAX_FOREIGN_HEADER_BYTES = 64 * 1024


class Publisher:
    """An `EventSink` on RabbitMQ. `run` must be running while it is used.

    A message is sent again until the broker confirms it, across outages; ids make the
    repetition harmless.
    """

    def __init__(self, settings: BrokerSettings, delays: FullJitter | None = None) -> None:
        self._settings = settings
        self._delays = delays or FullJitter(base_s=0.2, cap_s=settings.reconnect_cap_s)
        self._channel: AbstractChannel | None = None
        self._open = asyncio.Event()

    async def run(self) -> None:
        """Keep a connection and a channel open until cancelled."""
        while True:
            connection = await keep_connecting(self._settings, "utterd publisher", self._delays)
            try:
                with losses_raised():
                    async with connection:
                        await self._use(connection)
            except BROKER_ERRORS as error:
                log.warning("publisher_lost", reason=str(error) or type(error).__name__)
                await self._delays.wait(1)

    async def _use(self, connection: AbstractConnection) -> None:
        """Open a channel, and another whenever the broker closes it, until one can't be opened."""
        while True:
            # The broker may be gone without a word: then the channel would never be open.
            async with asyncio.timeout(self._settings.connect_timeout_s):
                channel = await connection.channel(on_return_raises=True)
            self._channel = channel
            self._open.set()
            try:
                await channel.closed()
            finally:
                self._channel = None
                self._open.clear()

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
        await self._confirmed(self._settings.exchanges.events, event.type.routing_key, message)
        if event.reply_to and event.type.is_terminal:
            await self._confirmed("", event.reply_to, message, may_be_refused=True)

    async def bury(self, message: Message, error: JobError) -> None:
        """Put a copy among the dead, with the reason in its headers."""
        reason: FieldTable = {
            REASON_HEADER_PREFIX + "error-code": str(error.code),
            REASON_HEADER_PREFIX + "error-message": error.message,
            REASON_HEADER_PREFIX + "attempt": message.attempt,
            REASON_HEADER_PREFIX + "routing-key": message.routing_key,
            REASON_HEADER_PREFIX + "died-at": datetime.now(UTC).isoformat(),
        }
        copy = AmqpMessage(
            message.body,
            content_type=message.content_type,
            content_encoding=message.content_encoding,
            delivery_mode=DeliveryMode.PERSISTENT,
            message_id=message.message_id,
            correlation_id=message.correlation_id,
            reply_to=message.reply_to,
            timestamp=message.timestamp,
            headers=_foreign_headers(message) | reason,
        )
        await self._confirmed(self._settings.exchanges.dead, DEAD_ROUTING_KEY, copy, mandatory=True)

    async def _confirmed(
        self,
        exchange: str,
        routing_key: str,
        message: AmqpMessage,
        *,
        mandatory: bool = False,
        may_be_refused: bool = False,
    ) -> None:
        failures = 0
        while True:
            await self._open.wait()
            try:
                with losses_raised():
                    await self._publish_once(exchange, routing_key, message, mandatory=mandatory)
            except BROKER_ERRORS as error:
                if may_be_refused and isinstance(error, DeliveryError | ChannelAccessRefused):
                    log.warning("publish_refused", exchange=exchange, reason=type(error).__name__)
                    return
                failures += 1
                log.warning(
                    "publish_failed",
                    exchange=exchange,
                    routing_key=routing_key,
                    failures=failures,
                    reason=str(error) or type(error).__name__,
                )
                await self._delays.wait(failures)
            else:
                return

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
            timeout=self._settings.publish_timeout_s,
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
