"""Nothing is taken while something around the daemon is broken, and what was taken goes back."""

import asyncio

import pytest

from utterd.config import Lane
from utterd.environment import Environment

pytestmark = pytest.mark.sandbox


async def ack(delivery) -> None:
    await delivery.ack()


class Line:
    """A handler like the daemon's: work can be interrupted until it has begun.

    Attributes:
        begins: whether it begins its work at once.
        finish: ends work that has begun.
        acked, released: the bodies of the messages that were settled so.
    """

    def __init__(self, *, begins=False):
        self.begins = begins
        self.finish = asyncio.Event()
        self.acked: list[bytes] = []
        self.released: list[bytes] = []
        self.running = None

    async def __call__(self, delivery) -> None:
        with self.running.interruptions.work() as work:
            if self.begins:
                work.begin()
            try:
                await self.finish.wait()
            except asyncio.CancelledError:
                if work.interruption is None:
                    raise
                work.task.uncancel()
                await delivery.release()
                self.released.append(delivery.message.body)
            else:
                work.close()
                await delivery.ack()
                self.acked.append(delivery.message.body)


async def test_a_pause_gives_back_what_has_not_begun(settings, wire, consuming, management):
    """Another daemon can take it at once; when all is well again, this one takes it itself."""
    line = Line()
    async with consuming(settings, line, prefetch=3) as running:
        line.running = running
        for body in (b"1", b"2", b"3"):
            await wire.publish(body)
        for _ in range(3):
            await running.deliveries.get()
        await wire.until_ready(settings.queues.interactive, 0)
        running.environment.report("store", "down")
        await wire.until_ready(settings.queues.interactive, 3)
        assert not running.consumer.consuming.is_set()
        assert sorted(line.released) == [b"1", b"2", b"3"]
        connections = {one["name"] for one in await management.connections("utterd consumer")}
        line.finish.set()
        running.environment.clear("store")
        await running.consumer.consuming.wait()
        again = {(await running.deliveries.get()).message.body for _ in range(3)}
        assert again == {b"1", b"2", b"3"}
        assert connections == {
            one["name"] for one in await management.connections("utterd consumer")
        }
    assert await wire.ready(settings.queues.interactive) == 0
    assert await wire.ready(settings.queues.dead) == 0


async def test_what_has_begun_is_settled_during_a_pause(settings, wire, consuming, until):
    """Its channel stays open, so its ack counts and nothing is delivered twice."""
    line = Line(begins=True)
    async with consuming(settings, line) as running:
        line.running = running
        await wire.publish(b"1")
        await running.deliveries.get()
        running.environment.report("store", "down")
        await wire.publish(b"2")
        await wire.until_ready(settings.queues.interactive, 1)
        line.finish.set()
        await until(lambda: line.acked == [b"1"])
        running.environment.clear("store")
        assert (await running.deliveries.get()).message.body == b"2"
        assert running.deliveries.empty()


async def test_nothing_is_taken_before_all_is_well(settings, wire, consuming):
    """A daemon that starts with a broken part connects, and waits."""
    environment = Environment()
    environment.report("store", "not asked yet")
    async with consuming(settings, ack, environment=environment, until_consuming=False) as running:
        await wire.publish(b"1")
        await wire.until_ready(settings.queues.interactive, 1)
        assert running.deliveries.empty()
        environment.clear("store")
        assert (await running.deliveries.get()).message.body == b"1"


async def test_a_release_waits_for_the_pause(settings, wire, consuming):
    """Given back while we consume, a message would be ours again at once."""
    environment = Environment()

    async def meet_a_fault(delivery) -> None:
        if environment.troubled.is_set() or deliveries.get(delivery.message.body):
            await delivery.ack()
            return
        deliveries[delivery.message.body] = delivery
        releasing.set()
        await delivery.release()

    deliveries, releasing = {}, asyncio.Event()
    async with consuming(settings, meet_a_fault, environment=environment) as running:
        await wire.publish(b"1")
        await running.deliveries.get()
        await releasing.wait()
        assert await wire.ready(settings.queues.interactive) == 0
        environment.report("store", "down")
        await wire.until_ready(settings.queues.interactive, 1)
        assert running.deliveries.empty()
        environment.clear("store")
        await running.deliveries.get()


async def test_no_message_is_mislaid_by_pauses(settings, wire, consuming):
    """However often it pauses under load, each job is settled and none stays in hand."""
    acked = []

    async def ack_and_tell(delivery) -> None:
        await delivery.ack()
        acked.append(delivery.message.body)

    async def publish(bodies) -> None:
        for number, body in enumerate(bodies):
            await wire.publish(body, list(Lane)[number % 2])

    bodies = [str(number).encode() for number in range(600)]
    async with consuming(settings, ack_and_tell, prefetch=8) as running:
        publishing = asyncio.create_task(publish(bodies))
        turns = 0
        while len(acked) < len(bodies):
            running.environment.report("store", "down")
            # Not always at the same point between the broker's frames.
            turns = (turns + 1) % 11
            for _ in range(turns):
                await asyncio.sleep(0)
            running.environment.clear("store")
            await running.consumer.consuming.wait()
            await running.deliveries.get()
        await publishing
    assert sorted(acked) == sorted(bodies)
    for lane in Lane:
        assert await wire.ready(settings.queues.of_lane(lane)) == 0
    assert await wire.ready(settings.queues.dead) == 0


async def test_a_stop_during_a_pause_returns(settings, wire, consuming):
    """It takes nothing any more, and what was begun is finished first."""
    line = Line(begins=True)
    async with consuming(settings, line) as running:
        line.running = running
        await wire.publish(b"1")
        await running.deliveries.get()
        running.environment.report("store", "down")
        await wire.publish(b"2")
        await wire.until_ready(settings.queues.interactive, 1)
        running.stop.set()
        line.finish.set()
        await running.running
        assert running.deliveries.empty()
    assert line.acked == [b"1"]
    assert (await wire.next(settings.queues.interactive)).body == b"2"


async def test_a_stop_gives_back_what_has_not_begun(settings, wire, consuming):
    """It is not rejected, and the stop does not wait for it."""
    line = Line()
    async with consuming(settings, line, drain_timeout_s=3600) as running:
        line.running = running
        await wire.publish(b"waiting")
        await running.deliveries.get()
        line.begins = True
        await wire.publish(b"begun")
        await running.deliveries.get()
        running.stop.set()
        await wire.until_ready(settings.queues.interactive, 1)
        assert not running.running.done()
        line.finish.set()
        await running.running
    assert (line.acked, line.released) == ([b"begun"], [b"waiting"])
    assert (await wire.next(settings.queues.interactive)).body == b"waiting"
    assert await wire.ready(settings.queues.dead) == 0


async def test_a_connection_that_is_lost_during_a_pause_is_replaced(
    through_proxy, proxy, wire, consuming, until
):
    """When the pause ends, there is a live consumer."""
    async with consuming(through_proxy, ack) as running:
        running.environment.report("store", "down")
        await until(lambda: not running.consumer.consuming.is_set())
        connections = proxy.accepted
        proxy.cut()
        await until(lambda: proxy.accepted > connections)
        running.environment.clear("store")
        await running.consumer.consuming.wait()
        await wire.publish(b"1")
        assert (await running.deliveries.get()).message.body == b"1"


async def test_a_pause_that_comes_with_a_loss_ends(through_proxy, proxy, wire, consuming):
    """Whichever of the two is seen first."""
    async with consuming(through_proxy, ack) as running:
        for number in range(5):
            running.environment.report("store", "down")
            proxy.cut()
            for _ in range(number):
                await asyncio.sleep(0)
            running.environment.clear("store")
            body = str(number).encode()
            await wire.publish(body)
            while (await running.deliveries.get()).message.body != body:
                pass
