"""Whether RabbitMQ can be used: reached, of a fit version, with rights and topology."""

from aio_pika.abc import AbstractConnection
from aio_pika.exceptions import ChannelNotFoundEntity

from utterd.broker import declare
from utterd.broker.connection import BROKER_ERRORS, address, connect, losses_raised
from utterd.broker.topology import topology
from utterd.broker.version import version_of
from utterd.config import BrokerSettings, Lane
from utterd.doctor.broker_rights import examine_rights
from utterd.doctor.broker_version import version_finding
from utterd.doctor.dead_lettering import examine_dead_lettering
from utterd.doctor.finding import Finding, Findings, fault, ok, warning
from utterd.errors import BrokerUnavailableError, ConfigurationError

_NEARLY_FULL = 0.9


async def examine_broker(settings: BrokerSettings) -> Findings:
    """Connect, and try what a daemon does without doing any of it."""
    try:
        connection = await connect(settings, "utterd doctor")
    except BrokerUnavailableError as error:
        yield fault("connection", error.message)
        return
    async with connection:
        version = version_of(connection)
        yield ok("connection", f"RabbitMQ {version} at {address(settings)}")
        yield version_finding(version, settings.limits)
        if settings.declare_topology and await _is_bare(connection, settings):
            yield warning(
                "topology",
                "nothing is declared yet, so rights can't be tried: `utterd topology apply`"
                " declares it, or `utterd run`",
            )
            return
        yield await _topology(connection, settings)
        async for finding in examine_rights(connection, settings):
            yield finding
        for lane in Lane:
            yield await _lane(connection, settings, lane)
        yield await _lapsed(connection, settings)
        yield await _dead(connection, settings)
    if settings.declare_topology:
        # Whoever may not declare can't try it.
        yield await examine_dead_lettering(settings)


async def _is_bare(connection: AbstractConnection, settings: BrokerSettings) -> bool:
    """Whether none of the queues is there that would tell that a daemon was."""
    depths = [await _depth(connection, name) for name in settings.watched_queues]
    return not any(depths)


async def _topology(connection: AbstractConnection, settings: BrokerSettings) -> Finding:
    try:
        await declare.check(connection, topology(settings))
    except ConfigurationError as error:
        return fault("topology", str(error))
    return ok("topology", "stands as the settings describe it")


async def _lane(connection: AbstractConnection, settings: BrokerSettings, lane: Lane) -> Finding:
    check, limit = f"lane {lane}", settings.limits.max_length
    found = await _depth(connection, settings.queues.of_lane(lane))
    if found is None:
        return warning(check, "is not there: `utterd topology apply` declares it")
    waiting, consumers = found
    says = f"{waiting} of at most {limit} jobs wait, {consumers} daemons take them"
    if waiting >= limit:
        return fault(check, f"{says}: publishers are refused. Start more daemons")
    if waiting >= limit * _NEARLY_FULL:
        return warning(check, f"{says}: publishers will be refused soon. Start more daemons")
    if waiting and not consumers:
        return warning(check, f"{says}: start one with `utterd run`")
    return ok(check, says)


async def _lapsed(connection: AbstractConnection, settings: BrokerSettings) -> Finding:
    waiting, consumers = await _depth(connection, settings.queues.lapsed) or (0, 0)
    if waiting and not consumers:
        return warning(
            "lapsed jobs",
            f"of {waiting} that the broker gave up nobody has been told: start a daemon with"
            " `utterd run`",
        )
    return ok("lapsed jobs", f"{waiting} wait to be told of")


async def _dead(connection: AbstractConnection, settings: BrokerSettings) -> Finding:
    found = await _depth(connection, settings.queues.dead)
    if found is None:
        return fault(
            "dead jobs",
            f"the queue {settings.queues.dead} is missing, and daemons pause at the first job that"
            " fails: `utterd topology apply` declares it",
        )
    waiting, _ = found
    if waiting:
        return warning("dead jobs", f"there are {waiting}: look at them with `utterd dead list`")
    return ok("dead jobs", "there are none")


async def _depth(connection: AbstractConnection, queue_name: str) -> tuple[int, int] | None:
    """Messages that wait in a queue, and its consumers; None when it is not there.

    Raises:
        BrokerUnavailableError: the broker was lost.
    """
    try:
        with losses_raised():
            async with connection.channel() as channel:
                queue = await channel.declare_queue(queue_name, passive=True)
    except ChannelNotFoundEntity:
        return None
    except BROKER_ERRORS as error:
        raise BrokerUnavailableError(
            f"the broker does not tell of {queue_name}: {error}. Look into its log"
        ) from error
    facts = queue.declaration_result
    return facts.message_count or 0, facts.consumer_count or 0
