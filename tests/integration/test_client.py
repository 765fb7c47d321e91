import asyncio
import json
from contextlib import aclosing
from datetime import UTC, datetime
from uuid import uuid4

import aio_pika
import pytest

from utterd.broker.connection import connect
from utterd.broker.control import listen
from utterd.client import NoOutcomeError, open_client
from utterd.config import Lane
from utterd.errors import BrokerUnavailableError, ConfigurationError
from utterd_schemas.events import HEADER_PREFIX, EventType
from utterd_schemas.job import Job

pytestmark = pytest.mark.sandbox


@pytest.fixture
async def client(settings):
    async with asyncio.timeout(20), open_client(settings, "utterd test") as client:
        yield client


@pytest.fixture
async def channel(settings):
    """A daemon's end of the broker."""
    async with await connect(settings, "daemon") as connection, connection.channel() as channel:
        yield channel


def event(kind: EventType, job_id: str) -> aio_pika.Message:
    attributes = {
        "specversion": "1.0",
        "id": str(uuid4()),
        "source": "/test",
        "type": str(kind),
        "subject": job_id,
        "time": datetime.now(UTC).isoformat(),
    }
    return aio_pika.Message(
        json.dumps({"job_id": job_id}).encode(),
        type=str(kind),
        headers={HEADER_PREFIX + name: value for name, value in attributes.items()},
    )


async def next_job(channel, settings, lane=Lane.INTERACTIVE):
    queue = await channel.get_queue(settings.queues.of_lane(lane))
    async with queue.iterator() as jobs:
        async for job in jobs:
            await job.ack()
            return job
    raise AssertionError("the channel was closed")


@pytest.mark.parametrize("lane", list(Lane))
async def test_a_published_job_lies_in_its_lane(client, channel, settings, lane):
    """The body is the job's JSON, only what was set, and the id is the message's too."""
    job_id = await client.publish(Job(text="Hello.", job_id="j-1"), lane)
    message = await next_job(channel, settings, lane)
    assert job_id == message.message_id == "j-1"
    assert json.loads(message.body) == {"text": "Hello.", "job_id": "j-1"}
    assert message.content_type == "application/json"
    assert message.delivery_mode == 2
    assert message.timestamp is not None


async def test_a_job_without_an_id_gets_one(client, channel, settings):
    """The id that is returned is what the daemon will find."""
    job_id = await client.publish(Job(text="Hello."), Lane.BATCH)
    assert (await next_job(channel, settings, Lane.BATCH)).message_id == job_id


async def test_the_longest_id_of_the_widest_characters_travels(client, channel, settings):
    """What AMQP's short string can't hold stands in the body all the same."""
    job_id = "\U0001f426" * 128
    assert await client.publish(Job(text="Hello.", job_id=job_id), Lane.BATCH) == job_id
    assert json.loads((await next_job(channel, settings, Lane.BATCH)).body)["job_id"] == job_id


async def test_a_missing_lane_is_told_before_a_job_is_lost(client, channel, settings):
    """The alternate exchange would take the job, so the lane itself is asked for."""
    await channel.queue_delete(settings.queues.batch)
    with pytest.raises(ConfigurationError, match=r"no batch lane: run `utterd topology apply`"):
        await client.publish(Job(text="Hello."), Lane.BATCH)
    await client.publish(Job(text="Hello."), Lane.INTERACTIVE)


async def test_a_lost_connection_is_told_with_the_job_id(settings):
    """Publishing on a connection that is gone says what to send again."""
    async with open_client(settings, "utterd test") as client:
        await client.connection.close()
        with pytest.raises(BrokerUnavailableError, match="same job id, 'j-1'"):
            await client.publish(Job(text="Hello.", job_id="j-1"), Lane.BATCH)


async def test_waiting_returns_the_terminal_event_of_the_own_job(client, channel, settings):
    """Other jobs' events, earlier events and foreign messages are passed over."""

    async def answer() -> None:
        job = await next_job(channel, settings)
        for reply in (
            aio_pika.Message(b"not an event"),
            event(EventType.COMPLETED, "another"),
            event(EventType.STARTED, job.message_id),
            event(EventType.FAILED, job.message_id),
        ):
            await channel.default_exchange.publish(reply, job.reply_to)

    async with asyncio.TaskGroup() as daemon:
        daemon.create_task(answer())
        outcome = await client.publish_and_wait(
            Job(text="Hello.", job_id="j-1"), Lane.INTERACTIVE, timeout_s=15
        )
    assert outcome["type"] == EventType.FAILED
    assert outcome["subject"] == "j-1"
    assert outcome["data"] == {"job_id": "j-1"}


async def test_waiting_ends_in_time(client):
    """Without a daemon the message says how to find out more."""
    with pytest.raises(NoOutcomeError, match=r"j-1 within 0\.05 s: check that a daemon"):
        await client.publish_and_wait(
            Job(text="Hello.", job_id="j-1"), Lane.INTERACTIVE, timeout_s=0.05
        )


async def test_waiting_ends_with_the_connection(client, channel, settings):
    """A lost broker is not reported as a daemon that took too long."""
    async with asyncio.TaskGroup() as waiting:
        outcome = waiting.create_task(_lost(client))
        await next_job(channel, settings)
        await client.connection.close()
    assert "connection to the broker was lost" in outcome.result()


async def _lost(client) -> str:
    with pytest.raises(BrokerUnavailableError) as caught:
        await client.publish_and_wait(Job(text="Hello."), Lane.INTERACTIVE, timeout_s=600)
    return str(caught.value)


@pytest.fixture
async def orders(channel, settings):
    """What a daemon is told, as it comes."""
    told: asyncio.Queue[tuple[str, datetime]] = asyncio.Queue()
    await listen(channel, settings, lambda job_id, at: told.put_nowait((job_id, at)))
    return told


async def test_an_order_to_cancel_reaches_the_daemons(client, orders):
    """Each job is named, with the instant from which on a new job of this id counts again."""
    await client.cancel(["j-1", "j-2"])
    (first, at), (second, _) = await orders.get(), await orders.get()
    assert (first, second) == ("j-1", "j-2")
    assert abs((datetime.now(UTC) - at).total_seconds()) < 15


async def test_an_order_that_nobody_hears_is_told(client):
    """Orders are not kept, so without a daemon nothing would happen."""
    with pytest.raises(BrokerUnavailableError, match=r"no daemon heard the order.*cancel again"):
        await client.cancel(["j-1"])


async def test_an_order_without_an_exchange_says_what_to_run(client, channel, settings):
    """On a broker without utterd's topology, cancel explains itself."""
    await channel.exchange_delete(settings.exchanges.control)
    with pytest.raises(ConfigurationError, match=r"run `utterd topology apply`, or start a daemon"):
        await client.cancel(["j-1"])


async def test_an_order_on_a_lost_connection_may_be_repeated(settings):
    """The message says that it does no harm."""
    async with open_client(settings, "utterd test") as client:
        await client.connection.close()
        with pytest.raises(BrokerUnavailableError, match="cancel again, it does no harm"):
            await client.cancel(["j-1"])


async def test_cancelling_can_wait_for_how_the_jobs_end(client, channel, settings, orders):
    """One terminal event for each, whatever it is; other jobs' events are passed over."""

    async def answer() -> None:
        exchange = await channel.get_exchange(settings.exchanges.events)
        await orders.get()
        await orders.get()
        for kind, job_id in (
            (EventType.CANCELLED, "another"),
            (EventType.STARTED, "j-2"),
            (EventType.COMPLETED, "j-2"),
            (EventType.CANCELLED, "j-1"),
        ):
            await exchange.publish(event(kind, job_id), kind.routing_key)

    async with asyncio.TaskGroup() as daemon:
        daemon.create_task(answer())
        outcomes = await client.cancel_and_wait(["j-1", "j-2"], timeout_s=15)
    assert {job_id: one["type"] for job_id, one in outcomes.items()} == {
        "j-1": EventType.CANCELLED,
        "j-2": EventType.COMPLETED,
    }


@pytest.mark.usefixtures("orders")
async def test_waiting_for_a_cancellation_ends_in_time(client):
    """Those jobs are named that nothing was heard of, for instance since they had ended before."""
    with pytest.raises(
        NoOutcomeError,
        match=r"no terminal event for job j-1, j-2 within 0\.1 s: it may have ended before",
    ):
        await client.cancel_and_wait(["j-2", "j-1"], timeout_s=0.1)


async def test_watching_yields_what_fits_the_pattern(client, channel, settings):
    """Events as they come, in structured form; others are not seen."""
    exchange = await channel.get_exchange(settings.exchanges.events)
    async with aclosing(client.watch("synthesis.failed")) as events:
        first = asyncio.ensure_future(anext(events))
        # The subscription is a queue on the broker: events find it once it is bound.
        while not first.done():
            for kind in (EventType.COMPLETED, EventType.FAILED):
                await exchange.publish(event(kind, "j-1"), kind.routing_key)
        received = await first
    assert received["type"] == EventType.FAILED
    assert received["specversion"] == "1.0"
    assert received["datacontenttype"] == "application/json"
    assert received["data"] == {"job_id": "j-1"}


async def test_watching_without_an_exchange_says_what_to_run(client, channel, settings):
    """On a broker without utterd's topology, watch explains itself."""
    await channel.exchange_delete(settings.exchanges.events)
    with pytest.raises(ConfigurationError, match=r"run `utterd topology apply`, or start a daemon"):
        await anext(client.watch())


async def test_watching_ends_with_the_connection(client, channel, settings):
    """A watcher that lost its broker doesn't look like one that has seen everything."""
    exchange = await channel.get_exchange(settings.exchanges.events)
    async with aclosing(client.watch()) as events:
        first = asyncio.ensure_future(anext(events))
        while not first.done():
            await exchange.publish(event(EventType.STARTED, "j-1"), "synthesis.started")
        await first
        await client.connection.close()
        with pytest.raises(BrokerUnavailableError, match="connection to the broker was lost"):
            await _last(events)


async def _last(events) -> None:
    async for _ in events:
        pass
