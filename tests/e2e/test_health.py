"""What a daemon tells those who watch over it, on real servers."""

import asyncio
import socket
from uuid import uuid4

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.place import PATIENCE_S

pytestmark = pytest.mark.sandbox


class Watcher:
    """A client of one daemon's health server."""

    def __init__(self, daemon, client):
        self._daemon, self._client = daemon, client

    async def _url(self, path):
        served = await self._daemon.until_logged("health_served")
        return f"http://127.0.0.1:{served['port']}{path}"

    async def until_ready(self, *, ready=True):
        """Ask until the daemon is ready, or no longer is; returns the whole answer."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                async with self._client.get(await self._url("/readyz")) as answer:
                    body = await answer.json()
                    assert (answer.status == 200) is body["ready"]
                if body["ready"] is ready:
                    return body

    async def metric(self, name, **labels):
        async with self._client.get(await self._url("/metrics")) as answer:
            text = await answer.text()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@pytest.fixture
async def watch():
    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as client:
        yield lambda daemon: Watcher(daemon, client)


async def test_a_deleted_queue_shows_in_readiness_and_is_counted(bus, start_alone, watch):
    """Connected and consuming nothing is not ready; the daemon mends it by itself."""
    watcher = watch(start_alone())
    await watcher.until_ready()
    losses = await watcher.metric("utterd_consumer_losses_total")
    await bus.channel.queue_delete(bus.place.broker.queues.batch)
    async with asyncio.timeout(PATIENCE_S):
        while await watcher.metric("utterd_consumer_losses_total") == losses:
            pass
    await watcher.until_ready()
    assert await watcher.metric("utterd_consumer_losses_total", reason="cancelled") == losses + 1
    assert (await bus.run("All is well again."))["cached"] is False


async def test_jobs_show_in_the_metrics_by_their_outcome(bus, start_alone, watch):
    """Made, found, and impossible ones; without a word of theirs."""
    watcher = watch(start_alone())
    await bus.run("A sentence that nobody has heard.")
    await bus.run("A sentence that nobody has heard.")
    job_id = str(uuid4())
    await bus.publish({"job_id": job_id, "text": "Hello.", "voice": "nobody/none"})
    await bus.terminal(job_id)
    for outcome in ("completed", "cached", "failed"):
        async with asyncio.timeout(PATIENCE_S):
            while await watcher.metric("utterd_jobs_total", outcome=outcome) < 1:
                pass
    assert await watcher.metric("utterd_audio_seconds_total", engine="hibari") > 1


async def test_a_store_that_is_missing_is_named(start_alone, watch):
    """Readiness says which part is broken, and the status why."""
    watcher = watch(start_alone(UTTERD_STORE__BUCKET="nobody-made-this"))
    body = await watcher.until_ready(ready=False)
    async with asyncio.timeout(PATIENCE_S):
        while "nobody-made-this" not in body["status"] or "answered" in body["status"]:
            body = await watcher.until_ready(ready=False)
    assert body["checks"]["store"] is False
    assert body["status"].startswith("paused: ")


async def test_systemd_hears_of_the_whole_life(start_alone, tmp_path):
    """Ready when jobs are taken, alive while it runs, stopping when told to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
        manager.bind(str(tmp_path / "notify"))
        heard = []

        async def hear(assignment):
            async with asyncio.timeout(PATIENCE_S):
                while not any(assignment in message for message in heard):
                    message = await asyncio.get_running_loop().sock_recv(manager, 4096)
                    heard.append(message.decode())

        daemon = start_alone(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="3000000")
        await hear("READY=1\nSTATUS=consuming, 0 of 1 busy")
        await hear("WATCHDOG=1")
        daemon.terminate()
        await hear("STOPPING=1")
        assert await asyncio.to_thread(daemon.wait) == 0
