"""Declares a topology on a broker, or finds where the broker's own differs."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import cast

from aio_pika.abc import AbstractConnection, ExchangeType
from aio_pika.exceptions import ChannelClosed, ChannelNotFoundEntity, ChannelPreconditionFailed
from aiormq.exceptions import ChannelAccessRefused, ChannelLockedResource
from pamqp.common import Arguments

from utterd.broker.topology import Argument, Binding, Exchange, Queue, Topology
from utterd.errors import ConfigurationError

_Declaration = Callable[[AbstractConnection], Awaitable[None]]


async def apply(connection: AbstractConnection, topology: Topology) -> None:
    """Declare whatever is missing, exchanges last and each bound at once.

    Raises:
        ConfigurationError: something stands with other arguments, each difference is named; or
            the broker's user may not declare.
    """
    with _refusals_raised():
        found = [await _difference(connection, _active_queue(queue)) for queue in topology.queues]
        for exchange in topology.exchanges:
            found.append(await _difference(connection, _active_exchange(exchange)))
            if not any(found):
                await _bind(connection, topology.bindings_of(exchange))
    _raise_differences(found)


async def check(connection: AbstractConnection, topology: Topology) -> None:
    """Find out, without making anything, whether exchanges and queues stand as described.

    Bindings are not looked at: AMQP can make them, but has no question for them. Arguments are
    compared only for a user who may declare; what another user can see is that a name is there.

    Raises:
        ConfigurationError: something is missing or has other arguments; each is named.
    """
    pairs = [
        *((_passive_exchange(one.name), _active_exchange(one)) for one in topology.exchanges),
        *((_passive_queue(one.name), _active_queue(one)) for one in topology.queues),
    ]
    with _refusals_raised():
        # Only what stands is declared again, and so nothing is made.
        found = [
            await _difference(connection, passive) or await _visible_difference(connection, active)
            for passive, active in pairs
        ]
    _raise_differences(found)


async def _bind(connection: AbstractConnection, bindings: Iterable[Binding]) -> None:
    async with connection.channel() as channel:
        for binding in bindings:
            queue = await channel.get_queue(binding.queue, ensure=False)
            await queue.bind(binding.exchange, binding.routing_key)


def _passive_exchange(name: str) -> _Declaration:
    async def declare(connection: AbstractConnection) -> None:
        async with connection.channel() as channel:
            await channel.declare_exchange(name, passive=True)

    return declare


def _active_exchange(exchange: Exchange) -> _Declaration:
    async def declare(connection: AbstractConnection) -> None:
        async with connection.channel() as channel:
            await channel.declare_exchange(
                exchange.name,
                ExchangeType(exchange.type),
                durable=True,
                arguments=_arguments(exchange.arguments),
            )

    return declare


def _passive_queue(name: str) -> _Declaration:
    async def declare(connection: AbstractConnection) -> None:
        async with connection.channel() as channel:
            await channel.declare_queue(name, passive=True)

    return declare


def _active_queue(queue: Queue) -> _Declaration:
    async def declare(connection: AbstractConnection) -> None:
        async with connection.channel() as channel:
            await channel.declare_queue(
                queue.name, durable=True, arguments=_arguments(queue.arguments)
            )

    return declare


def _arguments(arguments: Mapping[str, Argument]) -> Arguments:
    return cast("Arguments", dict(arguments))


async def _difference(connection: AbstractConnection, declare: _Declaration) -> str | None:
    """What the broker has against a declaration, in its own words.

    Each declaration has a channel of its own, for the broker closes it when it refuses.
    """
    try:
        await declare(connection)
    except (ChannelPreconditionFailed, ChannelNotFoundEntity, ChannelLockedResource) as error:
        return _reason(error)
    return None


async def _visible_difference(connection: AbstractConnection, declare: _Declaration) -> str | None:
    with suppress(ChannelAccessRefused):
        return await _difference(connection, declare)
    return None


@contextmanager
def _refusals_raised() -> Iterator[None]:
    try:
        yield
    except ChannelAccessRefused as error:
        raise ConfigurationError(
            f"the broker's user may not declare the topology: {_reason(error)}. Grant it the right,"
            " or run `utterd topology apply` as another user and set broker.declare_topology"
            " to false"
        ) from error


def _reason(error: ChannelClosed) -> str:
    _, _, reason = str(error).partition(" - ")
    return reason or str(error)


def _raise_differences(found: list[str | None]) -> None:
    if any(found):
        raise ConfigurationError(
            "the broker's topology differs from the settings: "
            + "; ".join(filter(None, found))
            + ". Change the settings to match, or drain and delete what differs and run"
            " `utterd topology apply`"
        )
