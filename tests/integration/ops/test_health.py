import asyncio
import socket

import aiohttp
import pytest

from utterd.errors import ConfigurationError
from utterd.ops.health import HealthRoutes, health_server
from utterd.ops.metrics import Metrics
from utterd.ops.status import State, Status


class Daemon:
    """What the server tells of, changed by the test."""

    def __init__(self):
        self.metrics = Metrics()
        self.is_alive = True
        self.checks = {"consuming": True, "store": True}
        self.faults = {}

    def status(self):
        return Status(
            state=State.CONSUMING,
            sentence="consuming, 1 of 2 busy",
            slots=2,
            busy=1,
            waiting=0,
            in_hand=1,
            checks=self.checks,
            faults=self.faults,
        )


@pytest.fixture
async def daemon():
    return Daemon()


@pytest.fixture
async def ask(daemon):
    routes = HealthRoutes(daemon.status, daemon.metrics, lambda: daemon.is_alive)
    async with (
        health_server(routes, "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
    ):
        yield client.get


async def test_liveness_is_a_matter_of_progress(daemon, ask):
    """200 while there is some, 503 when a restart is needed."""
    assert (await ask("/livez")).status == 200
    daemon.is_alive = False
    assert (await ask("/livez")).status == 503


async def test_readiness_names_its_checks(daemon, ask):
    """503 and the check that failed, so that nobody has to guess."""
    answer = await ask("/readyz")
    assert answer.status == 200
    daemon.checks = {"consuming": False, "store": False}
    answer = await ask("/readyz")
    assert answer.status == 503
    assert (await answer.json())["checks"] == {"consuming": False, "store": False}


async def test_metrics_take_a_tenth_of_the_loops_time_at_most(daemon):
    """Whoever asks again at once gets the same: writing them takes longer than all else here."""
    # Written from 0 s to 1 s, asked for at 9 s, and written from 10 s to 11 s.
    clock = iter([0.0, 1.0, 9.0, 10.0, 11.0])
    routes = HealthRoutes(daemon.status, daemon.metrics, lambda: True, lambda: next(clock))
    texts = []
    async with (
        health_server(routes, "127.0.0.1", 0) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client,
    ):
        for _ in range(3):
            texts.append(await (await client.get("/metrics")).text())
            daemon.metrics.worker_died()
    assert texts[0] == texts[1] != texts[2]
    assert "utterd_worker_deaths_total 2.0" in texts[2]


async def test_the_status_tells_of_failures_by_their_code(daemon, ask):
    """Newest first, without a word of the job."""
    daemon.metrics.attempt_failed("batch", "unknown_voice", "failed")
    daemon.metrics.attempt_failed("batch", "worker_died", "postponed")
    body = await (await ask("/status")).json()
    assert [failure["code"] for failure in body["last_failures"]] == [
        "worker_died",
        "unknown_voice",
    ]
    assert body["settled"] == {"failed": 1, "postponed": 1}
    assert body["state"] == "consuming"


async def test_the_metrics_are_in_prometheus_format(ask):
    """A scrape needs no other content type, and finds the daemon's own names."""
    answer = await ask("/metrics")
    assert answer.content_type == "text/plain"
    assert "utterd_worker_deaths_total 0.0" in await answer.text()


async def test_the_page_needs_nothing_from_elsewhere(ask):
    """It works on a gateway without a way out, and no other site may frame it or feed it."""
    answer = await ask("/")
    page = await answer.text()
    assert answer.content_type == "text/html"
    assert "http://" not in page
    assert "https://" not in page
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


async def test_a_port_that_is_taken_says_what_to_change(daemon):
    """Two instances on one host need two ports."""
    routes = HealthRoutes(daemon.status, daemon.metrics, lambda: True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match="Choose another port"):
            async with health_server(routes, "127.0.0.1", port):
                pass


async def test_the_server_ends_while_a_client_holds_its_connection(daemon):
    """A browser that shows the page must not hold up a stop."""
    routes = HealthRoutes(daemon.status, daemon.metrics, lambda: True)
    async with asyncio.timeout(10):
        async with health_server(routes, "127.0.0.1", 0) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: here\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()


async def test_connections_are_few_and_do_not_last(daemon, monkeypatch):
    """Half a request that never ends must not cost the daemon its descriptors."""
    monkeypatch.setattr("utterd.ops.health.MAX_CONNECTIONS", 2)
    monkeypatch.setattr("utterd.ops.health.CONNECTION_LIFETIME_S", 0.2)
    routes = HealthRoutes(daemon.status, daemon.metrics, lambda: True)
    async with asyncio.timeout(10), health_server(routes, "127.0.0.1", 0) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in held:
            writer.write(b"GET /livez HT")
        reader, refused = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        for reader, _ in held:
            assert await reader.read() == b""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: here\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        for _, one in [*held, (None, refused), (None, writer)]:
            one.close()
