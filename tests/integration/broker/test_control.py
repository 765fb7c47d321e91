import asyncio
from datetime import UTC, datetime, timedelta

import aio_pika
import pytest

from utterd.broker.control import cancel_order

pytestmark = pytest.mark.sandbox

NOW = datetime.now(UTC)


async def ack(delivery) -> None:
    await delivery.ack()


async def give_order(wire, message) -> None:
    exchange = await wire.channel.get_exchange(wire.settings.exchanges.control, ensure=False)
    await exchange.publish(message, "")


@pytest.fixture
def until_cancelled(until):
    async def wait(running, job_id) -> None:
        await until(lambda: running.interruptions.is_cancelled(job_id, None))

    return wait


async def test_a_cancel_reaches_every_daemon(settings, wire, consuming, until_cancelled):
    """Nobody need know which one has the job, or will get it."""
    async with consuming(settings, ack) as one, consuming(settings, ack) as other:
        await give_order(wire, cancel_order("mine"))
        for running in (one, other):
            await until_cancelled(running, "mine")
            assert not running.interruptions.is_cancelled("other", None)
            later = datetime.now(UTC) + timedelta(seconds=2)
            assert not running.interruptions.is_cancelled("mine", later)


async def test_a_cancel_interrupts_the_job_in_hand(settings, wire, consuming):
    """Its task is told while it works."""
    interrupted = asyncio.Event()

    async def work_for_ever(delivery) -> None:
        with running.interruptions.work() as work:
            work.job_id = "mine"
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                work.task.uncancel()
        interrupted.set()
        await delivery.ack()

    async with consuming(settings, work_for_ever) as running:
        await wire.publish(b"1")
        await running.deliveries.get()
        await give_order(wire, cancel_order("mine"))
        await interrupted.wait()


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"null", b"[]", b'{"cancel": 7}', b'{"stop": "mine"}', b"[" * 100_000],
    ids=repr,
)
async def test_an_order_that_nobody_understands_changes_nothing(
    settings, wire, consuming, body, until_cancelled
):
    """The next one is obeyed all the same, and one without a timestamp counts from now."""
    async with consuming(settings, ack) as running:
        await give_order(wire, aio_pika.Message(body))
        await give_order(wire, aio_pika.Message(b'{"cancel": "mine"}'))
        await until_cancelled(running, "mine")
        assert running.interruptions.is_cancelled("mine", NOW)


async def test_orders_are_obeyed_during_a_pause_and_after_a_loss(
    through_proxy, proxy, wire, consuming, until, until_cancelled
):
    """A job that waits out the pause in its queue can be called off."""
    async with consuming(through_proxy, ack) as running:
        running.environment.report("store", "down")
        await give_order(wire, cancel_order("one"))
        await until_cancelled(running, "one")
        running.environment.clear("store")
        connections = proxy.accepted
        proxy.cut()
        await until(lambda: proxy.accepted > connections)
        await running.consumer.consuming.wait()
        await give_order(wire, cancel_order("two"))
        await until_cancelled(running, "two")


async def test_who_may_not_hear_orders_works_all_the_same(
    settings, wire, consuming, restricted_user
):
    """A user without the right to declare gets jobs, and no cancels."""
    restricted = await restricted_user(settings, "^$", "^$", "^test-")
    checking = restricted.model_copy(update={"declare_topology": False})
    async with consuming(checking, ack) as running:
        await wire.publish(b"1")
        assert (await running.deliveries.get()).message.body == b"1"


@pytest.mark.parametrize("declares", [True, False])
async def test_no_daemon_stays_deaf_when_the_exchange_was_made_again(
    settings, wire, consuming, until_cancelled, declares
):
    """Whoever brings it back, every daemon hears orders again, also the one that saw nothing."""
    settings = settings.model_copy(update={"declare_topology": declares})
    async with consuming(settings, ack) as one, consuming(settings, ack) as other:
        await wire.channel.exchange_delete(settings.exchanges.control)
        await wire.declare()
        async with asyncio.TaskGroup() as cancelling:
            for running in (one, other):
                cancelling.create_task(until_cancelled(running, "mine"))
            # Orders are not kept, so it is given until the bindings are back.
            while not all(r.interruptions.is_cancelled("mine", None) for r in (one, other)):
                await wire.declare()
                await give_order(wire, cancel_order("mine"))


async def test_a_daemon_that_cannot_hear_orders_is_not_ready(settings, wire, consuming):
    """Without the exchange it takes no jobs and says what it misses, until that is back."""
    checking = settings.model_copy(update={"declare_topology": False})
    async with consuming(checking, ack) as running:
        await wire.channel.exchange_delete(settings.exchanges.control)
        await running.environment.troubled.wait()
        assert settings.exchanges.control in running.environment.faults["topology"]
        assert not running.consumer.consuming.is_set()
        await wire.declare()
        await running.consumer.consuming.wait()
        assert running.environment.sound.is_set()


async def test_a_lost_channel_for_orders_is_replaced(
    settings, wire, consuming, management, node_control, until, until_cancelled
):
    """The broker takes the queue of the orders away, and a new one takes its place."""
    async with consuming(settings, ack) as running:
        path = ("exchanges", "/", settings.exchanges.control, "bindings", "source")
        (binding,) = await management.request("GET", *path)
        # It is exclusive, so no other connection could.
        name = f'rabbit_misc:r(<<"/">>, queue, <<"{binding["destination"]}">>)'
        async with asyncio.TaskGroup() as beside:
            # The command may take longer to end than the consumer to be back.
            beside.create_task(until(lambda: not running.consumer.consuming.is_set()))
            await node_control.run(
                "eval",
                f"{{ok, Q}} = rabbit_amqqueue:lookup({name}),"
                ' rabbit_amqqueue:delete(Q, false, false, <<"test">>).',
            )
        await running.consumer.consuming.wait()
        await give_order(wire, cancel_order("mine"))
        await until_cancelled(running, "mine")
