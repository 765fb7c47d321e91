"""The way of a job from one attempt to the next."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from utterd.broker.message import History, Message
from utterd.broker.publisher import ENVIRONMENT_PART
from utterd.config import BrokerSettings, Lane, QueueLimits
from utterd.environment import Environment
from utterd.errors import BrokerUnavailableError

pytestmark = pytest.mark.sandbox

DELAY_S = 1
SECOND = History(attempt=2, worker_deaths=0)
STAMP = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def broker_limits():
    return QueueLimits(retry_delays_s=(DELAY_S,))


async def ack(delivery) -> None:
    await delivery.ack()


def delay_queue(settings: BrokerSettings) -> str:
    return f"{settings.queues.retry_prefix}{DELAY_S}s"


@pytest.mark.parametrize("lane", list(Lane))
async def test_a_postponed_job_comes_back_by_its_lane(settings, wire, consuming, publishing, lane):
    """After the delay, with all that the publisher gave it and the number of its attempt."""

    async def postpone_once(delivery) -> None:
        if delivery.message.history.attempt == 1:
            await publisher.postpone(delivery.message, delivery.lane, SECOND, delay_s=DELAY_S)
        await delivery.ack()

    async with publishing(settings) as publisher, consuming(settings, postpone_once) as running:
        loop = asyncio.get_running_loop()
        await wire.publish(
            b"1",
            lane,
            message_id="m-1",
            correlation_id="c-1",
            reply_to="r-1",
            content_type="application/json",
            timestamp=STAMP,
            headers={"traceparent": "00-aa-bb-01"},
        )
        first = await running.deliveries.get()
        taken_at = loop.time()
        second = await running.deliveries.get()
    assert loop.time() - taken_at > 0.9 * DELAY_S
    assert (first.lane, second.lane) == (lane, lane)
    message = second.message
    assert message.history == SECOND
    for name in ("body", "message_id", "correlation_id", "reply_to", "content_type", "timestamp"):
        assert getattr(message, name) == getattr(first.message, name), name
    assert message.headers["traceparent"] == "00-aa-bb-01"
    assert await wire.ready(settings.queues.dead) == 0
    assert await wire.ready(delay_queue(settings)) == 0


async def test_the_amqp_expiration_survives_the_delay(settings, consuming, publishing):
    """The property itself would make the broker drop the job, so the instant travels."""
    now = datetime.now(UTC).replace(microsecond=0)
    message = Message(body=b"1", timestamp=now, expiration_s=600.0)
    async with publishing(settings) as publisher, consuming(settings, ack) as running:
        await publisher.postpone(message, Lane.BATCH, SECOND, delay_s=DELAY_S)
        again = (await running.deliveries.get()).message
        assert (again.expiration_s, again.expires_at) == (None, now + timedelta(seconds=600))
        third = History(attempt=3, worker_deaths=0)
        await publisher.postpone(again, Lane.BATCH, third, delay_s=DELAY_S)
        assert (await running.deliveries.get()).message.expires_at == again.expires_at


async def test_a_job_can_wait_again_and_again(settings, wire, consuming, publishing):
    """The broker's own record of earlier waits neither stops nor doubles it."""

    async def postpone_thrice(delivery) -> None:
        attempt = delivery.message.history.attempt
        if attempt < 4:
            history = History(attempt=attempt + 1, worker_deaths=0)
            await publisher.postpone(delivery.message, delivery.lane, history, delay_s=DELAY_S)
        await delivery.ack()

    async with publishing(settings) as publisher, consuming(settings, postpone_thrice) as running:
        await wire.publish(b"1")
        attempts = [(await running.deliveries.get()).message.history.attempt for _ in range(4)]
        assert running.deliveries.empty()
    assert attempts == [1, 2, 3, 4]


async def test_a_job_that_was_dead_can_wait_too(settings, consuming, publishing):
    """The broker drops what it finds going in a circle, so its record is not sent on."""
    died = {
        "count": 1,
        "reason": "delivery_limit",
        "queue": settings.queues.interactive,
        "exchange": settings.exchanges.jobs,
        "routing-keys": ["synthesize.interactive"],
        "time": STAMP,
    }
    message = Message(
        body=b"1",
        headers={
            "x-death": [died],
            "x-first-death-queue": settings.queues.interactive,
            "x-first-death-reason": "delivery_limit",
            "x-first-death-exchange": settings.exchanges.jobs,
            "x-last-death-queue": settings.queues.interactive,
            "kept": "yes",
        },
    )
    async with publishing(settings) as publisher, consuming(settings, ack) as running:
        await publisher.postpone(message, Lane.INTERACTIVE, SECOND, delay_s=DELAY_S)
        again = (await running.deliveries.get()).message
    assert (again.body, again.headers["kept"]) == (b"1", "yes")
    assert {death["queue"] for death in again.headers["x-death"]} == {delay_queue(settings)}


async def test_a_copy_that_a_stranger_wants_is_not_made(settings, wire, consuming, publishing):
    """A `CC` header of the publisher's ends with the first attempt."""
    async with publishing(settings) as publisher, consuming(settings, ack) as running:
        message = Message(body=b"1", headers={"CC": ["synthesize.batch"]})
        await publisher.postpone(message, Lane.INTERACTIVE, SECOND, delay_s=DELAY_S)
        assert (await running.deliveries.get()).lane is Lane.INTERACTIVE
    assert running.deliveries.empty()
    for lane in Lane:
        assert await wire.ready(settings.queues.of_lane(lane)) == 0


async def test_nothing_is_acked_before_the_copy_is_safe(settings, wire, consuming, publishing):
    """With its delay queue gone the job stays the broker's; with it back, it comes again."""
    environment, acked = Environment(), asyncio.Event()

    async def postpone_once(delivery) -> None:
        if delivery.message.history.attempt == 1:
            await publisher.postpone(delivery.message, delivery.lane, SECOND, delay_s=DELAY_S)
        await delivery.ack()
        acked.set()

    async with (
        publishing(settings, environment=environment) as publisher,
        consuming(settings, postpone_once) as running,
    ):
        await wire.channel.queue_delete(delay_queue(settings))
        await wire.publish(b"1")
        await running.deliveries.get()
        await environment.troubled.wait()
        assert settings.exchanges.retry in environment.faults[ENVIRONMENT_PART]
        # The exchange is there, and yet nothing can be postponed.
        with pytest.raises(BrokerUnavailableError, match="nothing can be published"):
            await publisher.probe()
        assert not acked.is_set()
        await wire.declare()
        assert (await running.deliveries.get()).message.history == SECOND
        assert environment.sound.is_set()
        await publisher.probe()
    assert await wire.ready(settings.queues.interactive) == 0
