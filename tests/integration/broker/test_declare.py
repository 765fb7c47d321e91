import aio_pika
import pytest
from aio_pika.exceptions import ChannelNotFoundEntity

from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.topology import topology
from utterd.errors import ConfigurationError

pytestmark = pytest.mark.sandbox


@pytest.fixture
async def connection(bare_settings):
    async with await connect(bare_settings, "test") as connection:
        yield connection


async def names_on_broker(management, settings) -> set[str]:
    prefix = settings.exchanges.jobs.partition(".")[0]
    everything = [
        *await management.request("GET", "exchanges", "/"),
        *await management.request("GET", "queues", "/"),
    ]
    return {one["name"] for one in everything if one["name"].startswith(prefix)}


async def test_declares_what_the_plan_says_and_no_more(connection, bare_settings, management):
    """After apply, exactly the planned exchanges, queues and bindings stand."""
    plan = topology(bare_settings)
    await declare.apply(connection, plan)
    expected = {one.name for one in (*plan.exchanges, *plan.queues)}
    assert await names_on_broker(management, bare_settings) == expected
    bindings = {
        (one["source"], one["destination"], one["routing_key"])
        for one in await management.request("GET", "bindings", "/")
        if one["source"] in expected
    }
    assert bindings == {(one.exchange, one.queue, one.routing_key) for one in plan.bindings}


async def test_applying_again_changes_nothing(connection, bare_settings):
    """Apply may run at every start, and check agrees with it."""
    plan = topology(bare_settings)
    await declare.apply(connection, plan)
    await declare.apply(connection, plan)
    await declare.check(connection, plan)


async def test_a_job_before_its_lane_is_bound_is_not_lost(connection, bare_settings):
    """The exchange for jobs is the last, so all that catches what it can't route stands before."""
    jobs, dead = bare_settings.exchanges.jobs, bare_settings.queues.dead
    async with connection.channel() as channel:
        await channel.declare_exchange(jobs, "fanout", durable=True)
    with pytest.raises(ConfigurationError, match=jobs):
        await declare.apply(connection, topology(bare_settings))
    async with connection.channel() as channel:
        unrouted = await channel.get_exchange(bare_settings.exchanges.unrouted)
        await unrouted.publish(aio_pika.Message(b"job"), "any")
        message = await (await channel.get_queue(dead)).get()
        assert message.body == b"job"


async def test_every_queue_is_durable_or_exclusive(connection, bare_settings, management):
    """RabbitMQ 4.3 closes the connection of whoever declares another kind."""
    await declare.apply(connection, topology(bare_settings))
    for queue in topology(bare_settings).queues:
        standing = await management.request("GET", "queues", "/", queue.name)
        assert standing["durable"]
        assert standing["type"] == "quorum"


@pytest.mark.parametrize("act", [declare.apply, declare.check])
async def test_a_differing_argument_is_named_with_both_values(connection, bare_settings, act):
    """The queue, the argument, what the settings say and what the broker has."""
    await declare.apply(connection, topology(bare_settings))
    limits = bare_settings.limits.model_copy(update={"delivery_limit": 7})
    changed = bare_settings.model_copy(update={"limits": limits})
    with pytest.raises(ConfigurationError, match=r"`utterd topology apply`$") as caught:
        await act(connection, topology(changed))
    message = str(caught.value)
    for lane in ("interactive", "batch"):
        assert getattr(bare_settings.queues, lane) in message
    assert "x-delivery-limit" in message
    assert "7" in message
    assert "64" in message


@pytest.mark.parametrize("act", [declare.apply, declare.check])
async def test_a_differing_exchange_is_named(connection, bare_settings, act):
    """An exchange of another type is a difference too."""
    name = bare_settings.exchanges.events
    async with connection.channel() as channel:
        await channel.declare_exchange(name, "fanout", durable=True)
    with pytest.raises(ConfigurationError, match=rf"{name}.*'topic' but current is 'fanout'"):
        await act(connection, topology(bare_settings))


@pytest.mark.parametrize("act", [declare.apply, declare.check])
async def test_a_queue_in_exclusive_hands_is_named(connection, bare_settings, act):
    """A queue that another connection owns alone can't be ours."""
    name = bare_settings.queues.dead
    async with await connect(bare_settings, "owner") as owner, owner.channel() as channel:
        await channel.declare_queue(name, exclusive=True)
        with pytest.raises(ConfigurationError, match=rf"exclusive access.*{name}"):
            await act(connection, topology(bare_settings))


async def test_check_names_everything_that_is_missing_and_makes_nothing(
    connection, bare_settings, management
):
    """Looking leaves no trace on the broker."""
    plan = topology(bare_settings)
    with pytest.raises(ConfigurationError) as caught:
        await declare.check(connection, plan)
    for one in (*plan.exchanges, *plan.queues):
        assert f"'{one.name}'" in str(caught.value)
    assert await names_on_broker(management, bare_settings) == set()


@pytest.mark.parametrize(
    "rights",
    [("", ".*", ".*"), (".*", "", ".*"), (".*", ".*", "")],
    ids=["no configure", "no write", "no read"],
)
async def test_a_user_who_may_not_declare_is_told_what_to_do(
    bare_settings, restricted_user, rights
):
    """Whichever right is missing, the refusal names the thing and the two ways out."""
    restricted = await restricted_user(bare_settings, *rights)
    async with await connect(restricted, "restricted") as connection:
        with pytest.raises(ConfigurationError, match=r"refused for user.*declare_topology to fal"):
            await declare.apply(connection, topology(restricted))


async def test_a_user_who_may_not_declare_can_check(connection, bare_settings, restricted_user):
    """Without the right to configure, check still finds what is missing, and only that."""
    restricted = await restricted_user(bare_settings, "", ".*", ".*")
    async with await connect(restricted, "restricted") as restricted_connection:
        await declare.apply(connection, topology(bare_settings))
        await declare.check(restricted_connection, topology(restricted))
        async with connection.channel() as channel:
            await channel.queue_delete(bare_settings.queues.batch)
        with pytest.raises(ConfigurationError, match=bare_settings.queues.batch) as caught:
            await declare.check(restricted_connection, topology(restricted))
    assert bare_settings.queues.interactive not in str(caught.value)


async def test_a_job_that_fits_no_lane_is_kept_among_the_dead(wire):
    """A mistyped routing key loses no job."""
    exchange = await wire.channel.get_exchange(wire.settings.exchanges.jobs, ensure=False)
    await exchange.publish(aio_pika.Message(b"lost"), "synthesize.nowhere")
    assert (await wire.next(wire.settings.queues.dead)).body == b"lost"


async def test_a_refused_declaration_leaves_the_connection_usable(connection, bare_settings):
    """The broker closes a channel when it refuses, and never the connection."""
    with pytest.raises(ConfigurationError):
        await declare.check(connection, topology(bare_settings))
    async with connection.channel() as channel:
        with pytest.raises(ChannelNotFoundEntity):
            await channel.declare_queue("nowhere", passive=True)
    await declare.apply(connection, topology(bare_settings))
