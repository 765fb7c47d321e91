import asyncio

import pytest

from utterd.engines.hibari import describe
from utterd.engines.host import EngineHost, engine_host
from utterd.engines.protocol import Utterance
from utterd.ops.cpu import WorkerPlan

pytestmark = pytest.mark.sandbox

BUSY_S = 2.5
"""For each of two jobs in turn; the broker bears about two seconds of silence."""

SENTENCE = "The quick brown fox jumps over the lazy dog while nobody in the village is watching. "


async def test_heartbeats_are_kept_while_every_core_speaks(settings, wire, consuming, management):
    """Workers are processes, so the loop answers however long a job is, and no job is repeated."""
    lively = settings.model_copy(update={"heartbeat_s": 1})
    info = describe()
    plan = WorkerPlan(workers=2, concurrency=1, threads=1)
    loop = asyncio.get_running_loop()
    spoken = 0

    async with engine_host(EngineHost(info, plan)) as host:

        async def speak_for_long(delivery) -> None:
            nonlocal spoken
            deadline = loop.time() + BUSY_S
            while loop.time() < deadline:
                await host.speak(
                    Utterance(
                        text=SENTENCE * 2, voice="heart", language="en", speed=1.0, seed=spoken
                    )
                )
                spoken += 1
            await delivery.ack()

        async with consuming(lively, speak_for_long, prefetch=2) as running:
            for body in (b"1", b"2", b"3", b"4"):
                await wire.publish(body)
            before = {one["name"] for one in await management.connections("utterd consumer")}
            for _ in range(4):
                await running.deliveries.get()
            after = {one["name"] for one in await management.connections("utterd consumer")}
    assert spoken > 4
    assert after == before
    assert running.deliveries.empty()
    assert await wire.ready(settings.queues.interactive) == 0
    assert await wire.ready(settings.queues.dead) == 0
