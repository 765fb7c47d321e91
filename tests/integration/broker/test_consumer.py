import asyncio

import pytest

from utterd.backoff import FullJitter
from utterd.broker.consumer import Consumer
from utterd.config import Lane
from utterd.environment import Environment
from utterd.interruptions import Interruptions

pytestmark = pytest.mark.sandbox


class Held:
    """A handler that acks once it is released."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.done = 0

    async def __call__(self, delivery) -> None:
        await self.free.wait()
        await delivery.ack()
        self.done += 1


async def ack(delivery) -> None:
    await delivery.ack()


async def test_takes_jobs_while_others_run(settings, wire, consuming):
    """A job in hand holds up no other job, up to the prefetch."""
    held = Held()
    async with consuming(settings, held, prefetch=2) as running:
        for body in (b"1", b"2"):
            await wire.publish(body)
        taken = {(await running.deliveries.get()).message.body for _ in range(2)}
        assert taken == {b"1", b"2"}
        assert held.done == 0
        held.free.set()


async def test_takes_no_more_than_the_prefetch(settings, wire, consuming):
    """The third job comes when the first one is settled, and not before."""
    held = Held()
    async with consuming(settings, held, prefetch=2) as running:
        for body in (b"1", b"2", b"3"):
            await wire.publish(body)
        first = await running.deliveries.get()
        await running.deliveries.get()
        assert await wire.ready(settings.queues.interactive) == 1
        assert running.deliveries.empty()
        await first.ack()
        assert (await running.deliveries.get()).message.body == b"3"
        held.free.set()


async def test_each_lane_has_a_prefetch_of_its_own(settings, wire, consuming):
    """The prefetch counts per consumer, so a full batch lane holds up no interactive job."""
    held = Held()
    async with consuming(settings, held, prefetch=1) as running:
        await wire.publish(b"batch", Lane.BATCH)
        assert (await running.deliveries.get()).lane is Lane.BATCH
        await wire.publish(b"interactive", Lane.INTERACTIVE)
        assert (await running.deliveries.get()).lane is Lane.INTERACTIVE
        held.free.set()


async def test_the_broker_lists_two_connections_and_a_consumer_a_lane(
    settings, consuming, publishing, make_event, management
):
    """What consumes and what publishes have names; a prefetch belongs to one consumer."""
    async with consuming(settings, ack, prefetch=3), publishing(settings) as publisher:
        await publisher.send(make_event())
        for lane in Lane:
            consumer = await management.consumer(settings.queues.of_lane(lane))
            assert consumer["prefetch_count"] == 3
            assert consumer["ack_required"]
        names = {
            one["name"]: name
            for name in ("utterd consumer", "utterd publisher")
            for one in await management.connections(name)
        }
        assert names[consumer["channel_details"]["connection_name"]] == "utterd consumer"
        assert "utterd publisher" in names.values()


async def test_two_consumers_share_the_queues(settings, wire, consuming):
    """Each daemon of a fleet gets what the others have no slot for."""
    held = Held()
    async with (
        consuming(settings, held, prefetch=1) as one,
        consuming(settings, held, prefetch=1) as other,
    ):
        for body in (b"1", b"2"):
            await wire.publish(body)
        taken = {(await each.deliveries.get()).message.body for each in (one, other)}
        assert taken == {b"1", b"2"}
        held.free.set()


async def test_stop_drains(settings, wire, consuming):
    """Jobs in hand are finished and acked before the connection closes; no other is taken."""
    held = Held()
    async with consuming(settings, held, prefetch=3) as running:
        for body in (b"1", b"2"):
            await wire.publish(body)
            await running.deliveries.get()
        running.stop.set()
        await wire.publish(b"late")
        held.free.set()
        await running.running
    assert held.done == 2
    assert (await wire.next(settings.queues.interactive)).body == b"late"
    assert await wire.ready(settings.queues.interactive) == 0


async def test_what_is_not_drained_in_time_goes_back(settings, wire, consuming):
    """A job that outlasts the time-out is cancelled, and another daemon gets it."""
    held = Held()
    async with consuming(settings, held, drain_timeout_s=0.01) as running:
        await wire.publish(b"endless")
        await running.deliveries.get()
        running.stop.set()
        await running.running
    assert held.done == 0
    again = await wire.next(settings.queues.interactive)
    assert again.body == b"endless"
    assert again.redelivered


async def test_stop_while_the_broker_is_away_returns_at_once(through_proxy, proxy):
    """Nobody waits for a reconnect that is no longer wanted."""
    proxy.accepting = False
    stop = asyncio.Event()
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        consumer = Consumer(
            through_proxy,
            prefetch=1,
            handle=ack,
            handle_lapsed=ack,
            tasks=tasks,
            environment=Environment(),
            interruptions=Interruptions(),
            drain_timeout_s=60,
            delays=FullJitter(base_s=3600, cap_s=3600, uniform=max),
        )
        running = tasks.create_task(consumer.run(stop))
        await proxy.refusals(1)
        stop.set()
        await running


async def test_stop_drops_jobs_that_no_connection_can_settle(through_proxy, proxy, wire, consuming):
    """With the broker away a finished job could be neither announced nor settled."""
    held = Held()
    async with consuming(through_proxy, held, drain_timeout_s=3600) as running:
        await wire.publish(b"1")
        await running.deliveries.get()
        proxy.accepting = False
        proxy.cut()
        await proxy.refusals(1)
        running.stop.set()
        await running.running
    assert held.done == 0
    assert (await wire.next(through_proxy.queues.interactive)).body == b"1"


async def test_checks_instead_of_declaring_when_told_so(bare_settings, consuming):
    """With declare_topology off, a missing topology is refused and not made."""
    settings = bare_settings.model_copy(update={"declare_topology": False})
    with pytest.raises(ExceptionGroup, match="unhandled errors") as caught:
        async with consuming(settings, ack):
            pass
    assert settings.queues.batch in str(caught.value.exceptions[0])
