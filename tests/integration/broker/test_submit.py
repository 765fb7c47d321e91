"""One job into its lane, or a clear no."""

import aio_pika
import pytest

from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.submit import LaneFullError, submit
from utterd.broker.topology import topology
from utterd.config import Lane, QueueLimits
from utterd.errors import BrokerUnavailableError, ConfigurationError

pytestmark = pytest.mark.sandbox


@pytest.fixture
async def connection(bare_settings):
    async with await connect(bare_settings, "test") as connection:
        yield connection


def job() -> aio_pika.Message:
    return aio_pika.Message(b'{"text": "Hello."}', message_id="j-1")


async def test_a_full_lane_is_busy_with_its_depth(bare_settings, connection):
    """Nothing is wrong with the job: it may be sent again."""
    settings = bare_settings.model_copy(update={"limits": QueueLimits(max_length=2)})
    await declare.apply(connection, topology(settings))

    async def fill() -> None:
        # A quorum queue lets some more in before it refuses.
        for _ in range(100):
            await submit(connection, settings, job(), Lane.BATCH)

    with pytest.raises(LaneFullError, match=r"batch lane is busy: [2-9] jobs wait.*Try again"):
        await fill()
    await submit(connection, settings, job(), Lane.INTERACTIVE)


@pytest.mark.parametrize("gone", ["lane", "binding", "exchange"])
async def test_a_job_that_can_reach_no_lane_is_a_configuration_error(
    bare_settings, connection, gone
):
    """A missing lane or exchange, or no way between them where nothing else catches the job."""
    async with connection.channel() as channel:
        lane = bare_settings.queues.batch
        if gone != "exchange":
            await channel.declare_exchange(
                bare_settings.exchanges.jobs, aio_pika.ExchangeType.TOPIC
            )
        if gone != "lane":
            await channel.declare_queue(lane, durable=True)
    with pytest.raises(ConfigurationError, match=r"no batch lane: run `utterd topology apply`"):
        await submit(connection, bare_settings, job(), Lane.BATCH)


async def test_a_lost_connection_is_told_with_the_job_id(settings):
    """The broker may have the job: the same id makes a repetition harmless."""
    connection = await connect(settings, "test")
    await connection.close()
    with pytest.raises(BrokerUnavailableError, match=r"try again with the same job id, 'j-1'"):
        await submit(connection, settings, job(), Lane.BATCH)
