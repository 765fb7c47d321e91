"""The dead on a real broker: found, shown, replayed, removed."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import aio_pika
import pytest

from utterd.broker import declare
from utterd.broker.amqp_delivery import AmqpDelivery
from utterd.broker.connection import connect
from utterd.broker.dead import Wanted, open_dead
from utterd.broker.foreign_headers import publishers_headers
from utterd.broker.message import History, Message
from utterd.broker.publisher import Publisher
from utterd.broker.submit import LaneFullError
from utterd.broker.topology import DEAD_ROUTING_KEY, routing_key, topology
from utterd.config import Lane, QueueLimits
from utterd.environment import Environment
from utterd.errors import BrokerUnavailableError, ConfigurationError, WorkerDiedError

pytestmark = pytest.mark.sandbox

EVERYTHING = Wanted()


def job_id_of(delivery) -> str | None:
    return delivery.message.message_id


@pytest.fixture
async def channel(settings):
    async with await connect(settings, "test") as connection, connection.channel() as channel:
        yield channel


@pytest.fixture
def bury(channel, settings):
    """Puts a job among the dead as a daemon does."""

    async def bury_one(job_id="j-1", code="engine_failed", *, age_s=60.0, headers=None, **fields):
        exchange = await channel.get_exchange(settings.exchanges.dead, ensure=False)
        reason = {
            "x-utterd-error-code": code,
            "x-utterd-error-message": "the engine failed",
            "x-utterd-attempt": 4,
            "x-utterd-worker-deaths": 1,
            "x-utterd-routing-key": routing_key(Lane.INTERACTIVE),
            "x-utterd-died-at": (datetime.now(UTC) - timedelta(seconds=age_s)).isoformat(),
        }
        message = aio_pika.Message(
            json.dumps({"text": "Hello."}).encode(),
            message_id=job_id,
            headers=reason | (headers or {}),
            **fields,
        )
        await exchange.publish(message, DEAD_ROUTING_KEY)

    return bury_one


looking = partial(open_dead, name="utterd test", identify=job_id_of)


async def found(settings, wanted=EVERYTHING, limit=None) -> list[str | None]:
    async with looking(settings) as dead_jobs:
        return [dead.job_id async for dead in dead_jobs.find(wanted, limit)]


async def ready(channel, queue_name: str) -> int:
    queue = await channel.declare_queue(queue_name, passive=True)
    return queue.declaration_result.message_count


async def settled(channel, queue_name: str, count: int) -> None:
    """Wait until so many messages are ready."""
    async with asyncio.timeout(15):
        while await ready(channel, queue_name) != count:
            pass


async def next_of(channel, queue_name: str) -> aio_pika.abc.AbstractIncomingMessage:
    queue = await channel.get_queue(queue_name, ensure=False)
    async with asyncio.timeout(15):
        while (incoming := await queue.get(fail=False)) is None:
            pass
    await incoming.ack()
    return incoming


async def test_a_look_takes_nothing(settings, channel, bury):
    """What was found goes back when the look ends, and is found again in the next one."""
    for job_id in ("j-1", "j-2"):
        await bury(job_id)
    for _ in range(2):
        await settled(channel, settings.queues.dead, 2)
        assert await found(settings) == ["j-1", "j-2"]


async def test_an_empty_queue_holds_nobody(settings):
    """Nothing is found where nothing is."""
    assert await found(settings) == []


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(job_id="old"), ["old"]),
        (Wanted(job_id="nobody"), []),
        (Wanted(reason="worker_died"), ["new"]),
        (Wanted(died_before=datetime.now(UTC) - timedelta(hours=1)), ["old"]),
        (Wanted(died_after=datetime.now(UTC) - timedelta(hours=1)), ["new"]),
        (Wanted(job_id="old", reason="worker_died"), []),
    ],
)
async def test_filters_narrow_the_look(settings, bury, wanted, expected):
    """By id, by reason and by age; all that are given must fit."""
    await bury("old", age_s=7200)
    await bury("new", "worker_died")
    assert await found(settings, wanted) == expected


async def test_a_limit_ends_the_look(settings, bury):
    """No more than so many are found, counted after the filters."""
    for job_id in ("j-1", "other", "j-1", "j-1"):
        await bury(job_id)
    assert await found(settings, Wanted(job_id="j-1"), limit=2) == ["j-1", "j-1"]


async def test_a_replay_is_a_new_life(settings, channel, bury):
    """Body, id and the publisher's own headers and properties stay; the rest begins anew."""
    before = datetime.now(UTC).replace(microsecond=0)
    await bury(
        headers={"traceparent": "00-1-2-01", "CC": ["elsewhere"], "x-death": [{"count": 1}]},
        correlation_id="c-1",
        reply_to="somewhere",
        content_type="application/json",
        priority=3,
        timestamp=datetime(2020, 1, 1, tzinfo=UTC),
    )
    async with looking(settings) as dead_jobs:
        async for dead in dead_jobs.find(EVERYTHING):
            await dead_jobs.replay(dead)
    job = await next_of(channel, settings.queues.interactive)
    assert json.loads(job.body) == {"text": "Hello."}
    assert (job.message_id, job.correlation_id, job.reply_to) == ("j-1", "c-1", "somewhere")
    assert (job.content_type, job.priority, job.delivery_mode) == ("application/json", 3, 2)
    assert job.timestamp >= before
    assert {name for name in job.headers if name != "x-delivery-count"} == {"traceparent"}
    assert await ready(channel, settings.queues.dead) == 0


async def test_a_job_known_by_its_body_alone_keeps_its_id(settings, channel, bury):
    """What the job's id was made from changes with a replay, so it is written down."""
    await bury(None)
    async with looking(settings, identify=lambda _: "made-from-body") as dead_jobs:
        async for dead in dead_jobs.find(EVERYTHING):
            await dead_jobs.replay(dead)
    assert (await next_of(channel, settings.queues.interactive)).message_id == "made-from-body"


async def test_a_job_that_dies_again_is_not_replayed_again(settings, channel, bury):
    """One look ends with the jobs that were there at its beginning."""
    await bury("j-1")
    await bury("j-2")
    replayed = []
    async with looking(settings) as dead_jobs:
        async for dead in dead_jobs.find(EVERYTHING):
            await dead_jobs.replay(dead)
            replayed.append(dead.job_id)
            await bury("again")
    assert replayed == ["j-1", "j-2"]
    await settled(channel, settings.queues.dead, 2)


async def test_an_end_half_way_loses_no_job(settings, channel, bury):
    """Whatever stops a replay, each job is dead still or in its lane."""
    for number in range(3):
        await bury(f"j-{number}")

    async def replay_one_and_fail() -> None:
        async with looking(settings) as dead_jobs:
            async for dead in dead_jobs.find(EVERYTHING):
                await dead_jobs.replay(dead)
                raise InterruptedError

    with pytest.raises(InterruptedError):
        await replay_one_and_fail()
    await settled(channel, settings.queues.dead, 2)
    assert await ready(channel, settings.queues.interactive) == 1


async def test_a_lost_connection_is_told_and_loses_no_job(settings, channel, bury):
    """The broker itself gives back what was held."""
    for number in range(2):
        await bury(f"j-{number}")

    async def lose_the_broker() -> None:
        async with looking(settings) as dead_jobs:
            async for _ in dead_jobs.find(EVERYTHING):
                await dead_jobs.connection.close()

    with pytest.raises(BrokerUnavailableError, match="look again when it is back"):
        await lose_the_broker()
    await settled(channel, settings.queues.dead, 2)


async def test_a_missing_lane_keeps_the_job_dead(settings, channel, bury):
    """The alternate exchange would bring it back here, as a job without a lane."""
    await bury()
    await channel.queue_delete(settings.queues.interactive)

    async def replay() -> None:
        async with looking(settings) as dead_jobs:
            async for dead in dead_jobs.find(EVERYTHING):
                await dead_jobs.replay(dead)

    with pytest.raises(ConfigurationError, match="no interactive lane"):
        await replay()
    await settled(channel, settings.queues.dead, 1)


async def test_what_is_dropped_is_gone(settings, channel, bury):
    """Only what was dropped; the rest stays."""
    for job_id in ("j-1", "j-2"):
        await bury(job_id)
    async with looking(settings) as dead_jobs:
        async for dead in dead_jobs.find(Wanted(job_id="j-1")):
            await dead_jobs.drop(dead)
    await settled(channel, settings.queues.dead, 1)
    assert await found(settings) == ["j-2"]


async def test_a_missing_queue_says_what_to_run(bare_settings):
    """On a broker without utterd's topology, the look explains itself."""
    with pytest.raises(ConfigurationError, match="run `utterd topology apply`"):
        await found(bare_settings)


@asynccontextmanager
async def with_limits(settings, limits):
    """The test's own names, with other arguments of the queues."""
    limited = settings.model_copy(update={"limits": limits})
    async with await connect(limited, "test") as connection:
        await declare.apply(connection, topology(limited))
        async with connection.channel() as channel:
            yield limited, channel


async def publish(channel, settings, key=None, **properties) -> None:
    exchange = await channel.get_exchange(settings.exchanges.jobs, ensure=False)
    message = aio_pika.Message(b'{"text": "Hello."}', message_id="j-1", **properties)
    await exchange.publish(message, key or routing_key(Lane.INTERACTIVE))


async def only_one(settings):
    """The one dead job, once the broker has moved it."""
    async with asyncio.timeout(15):
        while True:
            async with looking(settings) as dead_jobs:
                async for dead in dead_jobs.find(EVERYTHING):
                    return dead


async def return_too_often(channel, queue_name) -> None:
    """Return one message until its queue has a limit of 1 behind it."""
    queue = await channel.get_queue(queue_name, ensure=False)
    async with asyncio.timeout(15), queue.iterator() as deliveries:
        returned = 0
        async for incoming in deliveries:
            await incoming.reject(requeue=True)
            returned += 1
            if returned > 1:
                break


async def test_a_job_that_can_not_even_be_told_of_is_dead(bare_settings):
    """The queue of the lapsed has a limit too; the lane and its reason are still known."""
    async with with_limits(bare_settings, QueueLimits(delivery_limit=1)) as (settings, channel):
        await publish(channel, settings)
        for queue_name in (settings.queues.interactive, settings.queues.lapsed):
            await return_too_often(channel, queue_name)
        obituary = (await only_one(settings)).obituary
    assert (obituary.reason, obituary.lane) == ("delivery_limit", Lane.INTERACTIVE)
    assert "delivered too often" in obituary.explanation
    assert obituary.died_at is not None
    assert [(death.reason, death.queue) for death in obituary.deaths] == [
        ("delivery_limit", bare_settings.queues.lapsed),
        ("delivery_limit", bare_settings.queues.interactive),
    ]


async def test_a_job_that_fits_no_lane_goes_to_batch(settings, channel):
    """A misspelt routing key is told as such, and its job is not lost."""
    await publish(channel, settings, "synthesize.urgent", timestamp=datetime.now(UTC))
    dead = await only_one(settings)
    assert (dead.obituary.reason, dead.obituary.lane) == ("unrouted", Lane.BATCH)
    assert dead.incoming.routing_key == "synthesize.urgent"
    assert dead.obituary.died_at is not None


async def test_a_full_lane_keeps_the_job_dead(bare_settings):
    """The lane is reported as busy, with its depth."""
    async with with_limits(bare_settings, QueueLimits(max_length=1)) as (settings, channel):
        exchange = await channel.get_exchange(settings.exchanges.dead, ensure=False)
        await exchange.publish(aio_pika.Message(b"{}", message_id="j-1"), DEAD_ROUTING_KEY)
        await fill(channel, settings, Lane.BATCH)

        async def replay() -> None:
            async with looking(settings) as dead_jobs:
                async for dead in dead_jobs.find(EVERYTHING):
                    await dead_jobs.replay(dead)

        with pytest.raises(LaneFullError, match=r"batch lane is busy: \d+ jobs wait"):
            await replay()
        await settled(channel, settings.queues.dead, 1)


async def fill(channel, settings, lane) -> None:
    """Publish until the broker refuses."""
    async with asyncio.timeout(15):
        while True:
            try:
                await publish(channel, settings, routing_key(lane))
            except aio_pika.exceptions.DeliveryError:
                return


async def test_a_job_that_died_at_a_later_attempt_goes_back_to_its_lane(bare_settings):
    """On its way through a delay it had the delay's routing key, but not for good."""
    async with (
        with_limits(bare_settings, QueueLimits(retry_delays_s=(1,))) as (settings, channel),
        asyncio.timeout(30),
        asyncio.TaskGroup() as tasks,
    ):
        publisher = Publisher(settings, Environment())
        running = tasks.create_task(publisher.run(), name="publisher")
        first = Message(body=b"{}", message_id="j-1", headers={"traceparent": "00-1-2-01"})
        second_attempt = History(attempt=2, worker_deaths=1)
        await publisher.postpone(first, Lane.INTERACTIVE, second_attempt, delay_s=1)
        came_back = await next_of(channel, settings.queues.interactive)
        message = AmqpDelivery(came_back, Lane.INTERACTIVE, asyncio.Event()).message
        await publisher.bury(message, WorkerDiedError("the worker died"))
        running.cancel()
        dead = await only_one(settings)
    obituary = dead.obituary
    assert (obituary.lane, obituary.reason) == (Lane.INTERACTIVE, "worker_died")
    # The death that ended the job counts as well.
    assert (obituary.attempts, obituary.worker_deaths) == (2, 2)
    assert publishers_headers(dead.incoming.headers) == {"traceparent": "00-1-2-01"}
