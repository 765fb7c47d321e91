"""Copies of what a stranger sent: none goes astray, none is refused for ever."""

import asyncio

import pytest
from pamqp import commands, frame

from utterd.broker.message import History, Message
from utterd.config import Lane, QueueLimits
from utterd.environment import Environment
from utterd.errors import UnknownVoiceError

pytestmark = pytest.mark.sandbox

ERROR = UnknownVoiceError("choose another voice")
FORGED_DEATHS = [["a"], "a", 5, {"queue": "x"}, [{}], [{"queue": 5, "reason": 7, "count": "x"}]]


@pytest.fixture
def broker_limits():
    return QueueLimits(retry_delays_s=(1,))


async def ack(delivery) -> None:
    await delivery.ack()


@pytest.mark.parametrize("header", ["CC", "BCC"])
async def test_a_dead_job_is_among_the_dead_only(settings, wire, publishing, header):
    """A publisher that wants copies of it elsewhere gets none of ours."""
    message = Message(body=b"1", headers={header: ["lapsed", settings.queues.batch]})
    async with publishing(settings) as publisher:
        await publisher.bury(message, ERROR)
    assert (await wire.next(settings.queues.dead)).body == b"1"
    for queue in settings.watched_queues:
        assert await wire.ready(queue) == 0


async def test_a_failed_job_with_copies_of_its_own_ends(settings, wire, consuming, publishing):
    """Buried from its lane, it does not come back as lapsed to be buried again."""
    async with publishing(settings) as publisher:
        lapsed = []

        async def bury(delivery) -> None:
            await publisher.bury(delivery.message, ERROR)
            await delivery.ack()

        async def bury_lapsed(delivery) -> None:
            lapsed.append(delivery)
            await bury(delivery)

        async with consuming(settings, bury, handle_lapsed=bury_lapsed):
            await wire.publish(b"1", headers={"CC": ["lapsed"]})
            await wire.until_ready(settings.queues.dead, 1)
            assert await wire.ready(settings.queues.lapsed) == 0
    assert lapsed == []


@pytest.mark.parametrize("deaths", FORGED_DEATHS, ids=repr)
async def test_forged_notes_of_the_broker_stop_no_postponed_job(
    settings, consuming, publishing, deaths
):
    """The broker itself fails at notes that it has not written, so it never sees them."""
    message = Message(body=b"1", headers={"x-death": deaths})
    async with publishing(settings) as publisher, consuming(settings, ack) as running:
        await publisher.postpone(message, Lane.BATCH, History(2, 0), delay_s=1)
        assert (await running.deliveries.get()).message.body == b"1"


@pytest.mark.parametrize("room_bytes", [8192, 131_072])
async def test_no_copy_is_larger_than_the_connections_frames(
    settings, wire, publishing, node_control, room_bytes
):
    """What the connection has settled on counts; headers beyond it are left behind."""
    environment = Environment()
    message = Message(
        body=b"1",
        routing_key="r" * 255,
        message_id="m-1",
        headers={"CC": ["A" * 65_400], "x-utterd-attempt": 1, "mine": 1}
        | {f"much-{number}": "x" * 3000 for number in range(40)},
    )
    async with (
        node_control.frames_of(room_bytes),
        publishing(settings, environment=environment) as publisher,
    ):
        await publisher.bury(message, ERROR)
        await publisher.postpone(message, Lane.BATCH, History(2, 0), delay_s=1)
    assert environment.sound.is_set()
    dead = await wire.next(settings.queues.dead)
    assert (dead.body, dead.message_id) == (b"1", "m-1")
    assert dead.headers["mine"] == 1
    assert dead.headers["x-utterd-routing-key"] == "r" * 255
    assert (await wire.next(settings.queues.batch)).body == b"1"


async def test_a_copy_that_the_broker_refuses_as_such_is_sent_with_less(
    through_proxy, proxy, wire, publishing, until
):
    """No pause comes of it: nothing around the daemon is broken."""
    environment = Environment()
    close = commands.Connection.Close(501, "FRAME_ERROR", 0, 0)
    async with publishing(through_proxy, environment=environment) as publisher:
        await publisher.bury(Message(body=b"0"), ERROR)
        await wire.next(through_proxy.queues.dead)
        refusals = []

        async def refuse() -> None:
            refusals.append(await wire.next(through_proxy.queues.dead))
            connections = proxy.accepted
            proxy.say(frame.marshal(close, 0))
            proxy.speak()
            await until(lambda: proxy.accepted > connections)

        proxy.silence()
        burying = publisher.bury(Message(body=b"1", message_id="m-1", headers={"mine": 1}), ERROR)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(burying)
            await refuse()
        (first,), second = refusals, await wire.next(through_proxy.queues.dead)
    assert (first.headers["mine"], "mine" in second.headers) == (1, False)
    assert second.message_id == "m-1"
    assert second.headers["x-utterd-error-code"] == "unknown_voice"
    assert environment.sound.is_set()


async def test_no_reply_goes_to_a_queue_of_utterds_own(settings, wire, publishing, make_event):
    """There, the event would be a job, or a dead one."""
    events = await wire.subscribe()
    queues = settings.queues
    own = [*settings.watched_queues, f"{queues.retry_prefix}1s", f"{queues.retry_prefix}77s"]
    async with publishing(settings) as publisher:
        for name in own:
            await publisher.send(make_event(reply_to=name))
    assert await wire.ready(events) == len(own)
    for name in own[:-1]:
        assert await wire.ready(name) == 0
