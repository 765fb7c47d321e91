"""Whether the broker's user may do what a daemon does, found by operations without effect."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

from aio_pika import Message
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, ExchangeType
from aio_pika.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed
from aiormq.exceptions import ChannelAccessRefused, PublishError

from utterd.broker.connection import BROKER_ERRORS, losses_raised
from utterd.config import BrokerSettings, Lane
from utterd.doctor.finding import Finding, Findings, fault, ok, warning
from utterd.errors import BrokerUnavailableError

Attempt = Callable[[AbstractChannel], Awaitable[None]]


async def examine_rights(connection: AbstractConnection, settings: BrokerSettings) -> Findings:
    """Try each right; what is not declared can't be tried."""
    exchanges, queues = settings.exchanges, settings.queues
    for lane in Lane:
        yield await _try(connection, f"read {lane}", _read_queue(queues.of_lane(lane)))
    yield await _try(connection, "read lapsed", _read_queue(queues.lapsed))
    yield await _try(connection, f"read {exchanges.control}", _hear(exchanges.control))
    for name in (exchanges.events, exchanges.retry, exchanges.dead):
        yield await _try(connection, f"write {name}", _write_exchange(name, exchanges.control))
    if settings.declare_topology:
        yield await _try(connection, "configure", _configure(exchanges.control))
    yield await _reply(connection)


async def _try(connection: AbstractConnection, right: str, attempt: Attempt) -> Finding:
    try:
        await _attempt(connection, attempt)
    except ChannelAccessRefused as error:
        return fault(
            right, f"the broker's user lacks a right: {_reason(error)}. Grant it with rabbitmqctl"
        )
    except ChannelNotFoundEntity as error:
        return warning(right, f"can't be tried before it is declared: {_reason(error)}")
    except ChannelPreconditionFailed as error:
        return fault(right, f"stands otherwise than the settings say: {_reason(error)}")
    return ok(right, "granted")


async def _attempt(connection: AbstractConnection, attempt: Attempt) -> None:
    """An attempt on a channel of its own, for the broker closes it when it refuses.

    Raises:
        ChannelClosed: the broker refuses; its subclass tells why.
        BrokerUnavailableError: the broker was lost.
    """
    refusals = (ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed)
    try:
        with losses_raised():
            async with connection.channel(on_return_raises=True) as channel:
                await attempt(channel)
    except (*refusals, PublishError):
        raise
    except BROKER_ERRORS as error:
        raise BrokerUnavailableError(
            f"the broker broke off while its rights were tried: {error}. Look into its log"
        ) from error


def _read_queue(name: str) -> Attempt:
    async def attempt(channel: AbstractChannel) -> None:
        queue = await channel.get_queue(name, ensure=False)
        try:
            # The broker looks at the right first, and then refuses this priority: no job moves.
            await queue.consume(_ignore, arguments={"x-priority": "none"})
        except ChannelPreconditionFailed:
            return

    return attempt


async def _ignore(_incoming: AbstractIncomingMessage) -> None: ...


def _hear(exchange: str) -> Attempt:
    """A queue of its own, gone with the connection, as every daemon has one for orders."""

    async def attempt(channel: AbstractChannel) -> None:
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange)
        await queue.delete()

    return attempt


def _write_exchange(name: str, readable: str) -> Attempt:
    """Removing a binding that is not there needs the right to write, and does nothing."""

    async def attempt(channel: AbstractChannel) -> None:
        target = await channel.declare_exchange(name, passive=True)
        await target.unbind(readable, f"utterd-doctor-{uuid4().hex}")

    return attempt


def _configure(control: str) -> Attempt:
    """Declaring again what stands already changes nothing."""

    async def attempt(channel: AbstractChannel) -> None:
        await channel.declare_exchange(control, passive=True)
        await channel.declare_exchange(control, ExchangeType.FANOUT, durable=True)

    return attempt


async def _reply(connection: AbstractConnection) -> Finding:
    async def attempt(channel: AbstractChannel) -> None:
        # To a queue that is not there: the broker looks at the right first, and returns it.
        message = Message(b"")
        await channel.default_exchange.publish(message, f"utterd-doctor-{uuid4().hex}")

    try:
        await _attempt(connection, attempt)
    except PublishError:
        return ok("write replies", "granted")
    except ChannelAccessRefused as error:
        return warning(
            "write replies",
            f"no event can be copied to a job's reply_to: {_reason(error)}. Grant the right to"
            " write amq.default where publishers ask for replies",
        )
    return warning("write replies", "the broker took a message for a queue that is not there")


def _reason(error: Exception) -> str:
    _, _, reason = str(error).partition(" - ")
    return reason or str(error)
