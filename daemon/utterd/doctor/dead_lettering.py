"""Whether the broker still moves on what has waited long enough: no retry comes back otherwise."""

import asyncio
from uuid import uuid4

from aio_pika import Message
from aio_pika.abc import AbstractChannel, AbstractQueue

from utterd.broker.connection import BROKER_ERRORS, connect, losses_raised
from utterd.config import BrokerSettings
from utterd.doctor.finding import Finding, fault, ok

_CHECK = "dead-lettering"

_TTL_MS = 100
_DEADLINE_S = 5.0
# The queue goes by itself, should the doctor be killed.
_IDLE_LIFE_MS = 60_000

_BROKEN = (
    "the broker does not move on what has waited long enough: jobs that wait for another attempt or"
    " have lapsed stay where they are. A message with forged x-death headers does that to"
    " RabbitMQ 3.10, and a restart alone does not help: see docs/security.md. Else look for"
    " rabbit_fifo_dlx in the node's log"
)


async def examine_dead_lettering(settings: BrokerSettings) -> Finding:
    """Send a message through a delay of its own, made as those of the jobs are.

    On a connection of its own, for a broker that fails at this may close it.

    Raises:
        BrokerUnavailableError: the broker can't be reached.
    """
    async with await connect(settings, "utterd doctor") as connection:
        try:
            with losses_raised():
                async with asyncio.timeout(_DEADLINE_S), connection.channel() as channel:
                    await _send_through(channel, settings)
        except (*BROKER_ERRORS, TimeoutError):
            return fault(_CHECK, _BROKEN)
    return ok(_CHECK, "what has waited long enough comes back")


async def _send_through(channel: AbstractChannel, settings: BrokerSettings) -> None:
    retry = settings.exchanges.retry
    name = f"{settings.queues.retry_prefix}doctor-{uuid4().hex}"
    back = await channel.declare_queue(exclusive=True)
    await back.bind(retry, back.name)
    delay = await channel.declare_queue(
        name,
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-dead-letter-exchange": retry,
            "x-dead-letter-routing-key": back.name,
            "x-message-ttl": _TTL_MS,
            "x-expires": _IDLE_LIFE_MS,
        },
    )
    try:
        await delay.bind(retry, name)
        exchange = await channel.get_exchange(retry, ensure=False)
        await exchange.publish(Message(b""), name)
        await _next(back)
    finally:
        await delay.delete(if_unused=False, if_empty=False)


async def _next(queue: AbstractQueue) -> None:
    async with queue.iterator(no_ack=True) as messages:
        async for _ in messages:
            return
