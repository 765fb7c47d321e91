"""A delivery from RabbitMQ, as the jobs see it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog
from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import ChannelInvalidStateError

from utterd.broker.connection import BROKER_ERRORS, losses_raised
from utterd.broker.message import Message
from utterd.config import Lane

log = structlog.get_logger(__name__)

QUIET_TIMEOUT_S = 5.0


class AmqpDelivery:
    """A `Delivery` from RabbitMQ.

    Args:
        incoming: the message.
        lane: that it came by.
        quiet: set while nothing is consumed.
        on_ack: called when an acknowledgement was sent to a broker that is there.
    """

    def __init__(
        self,
        incoming: AbstractIncomingMessage,
        lane: Lane,
        quiet: asyncio.Event,
        on_ack: Callable[[], None] = lambda: None,
    ) -> None:
        self._incoming = incoming
        self._on_ack = on_ack
        self._quiet = quiet
        self._lane = lane
        self._message = _message(incoming)

    @property
    def message(self) -> Message:
        return self._message

    @property
    def lane(self) -> Lane:
        return self._lane

    @property
    def is_lost(self) -> bool:
        try:
            return self._incoming.channel.is_closed
        except ChannelInvalidStateError:
            return True

    async def ack(self) -> None:
        if await self._settle(self._incoming.ack()):
            self._on_ack()

    async def reject(self) -> None:
        await self._settle(self._incoming.reject(requeue=False))

    async def release(self) -> None:
        # While we consume, the broker would hand it to us again at once.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_TIMEOUT_S):
                await self._quiet.wait()
        await self._settle(self._incoming.nack(requeue=True))

    async def _settle(self, settlement: Awaitable[None]) -> bool:
        try:
            with losses_raised():
                await settlement
        except BROKER_ERRORS as error:
            log.warning("settlement_lost", lane=self._lane, reason=type(error).__name__)
            return False
        return True


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
        redelivered=bool(incoming.redelivered),
        headers=incoming.headers,
    )
