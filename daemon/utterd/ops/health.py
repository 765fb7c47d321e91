"""The daemon's own small HTTP server: is it alive, is it ready, what does it count."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import asdict
from http import HTTPStatus
from importlib.resources import files

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from utterd import __version__
from utterd.errors import ConfigurationError
from utterd.ops.metrics import Metrics
from utterd.ops.status import StatusSource

log = structlog.get_logger(__name__)

SHUTDOWN_TIMEOUT_S = 1.0
"""A browser that shows the page must not hold up a stop."""

MAX_CONNECTIONS = 32
CONNECTION_LIFETIME_S = 60.0
"""A browser that polls opens another one by itself."""

MAX_METRICS_SHARE = 0.1
"""Of the event loop's time, for writing the metrics, however many ask for them: jobs go on."""

# A page without scripts or styles of others; its own are inside it.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src"
    " 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class HealthRoutes:
    """What the server answers. Nothing here holds a job's text, an id or a secret.

    Args:
        status: tells what the daemon does.
        metrics: what it counts.
        is_alive: whether it makes progress; a False calls for a restart.
        monotonic: the clock.
    """

    def __init__(
        self,
        status: StatusSource,
        metrics: Metrics,
        is_alive: Callable[[], bool],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._status = status
        self._metrics = metrics
        self._is_alive = is_alive
        self._monotonic = monotonic
        self._exposition = b""
        self._stale_at_s = -math.inf

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes(
            [
                web.get("/", self.page),
                web.get("/livez", self.live),
                web.get("/readyz", self.ready),
                web.get("/status", self.status),
                web.get("/metrics", self.metrics),
            ]
        )
        return application

    async def live(self, _request: web.Request) -> web.Response:
        """200 while the daemon makes progress, 503 when only a restart can help."""
        alive = self._is_alive()
        return web.json_response({"alive": alive}, status=_status_of(is_good=alive))

    async def ready(self, _request: web.Request) -> web.Response:
        """200 while a job that is published now would be taken here; each check by its name."""
        status = self._status()
        body = {"ready": status.is_ready, "checks": dict(status.checks), "status": status.sentence}
        return web.json_response(body, status=_status_of(is_good=status.is_ready))

    async def status(self, _request: web.Request) -> web.Response:
        status = self._status()
        failures = [
            asdict(failure) | {"at": failure.at.isoformat()}
            for failure in reversed(self._metrics.last_failures)
        ]
        body = asdict(status) | {
            "version": __version__,
            "ready": status.is_ready,
            "settled": dict(self._metrics.settled()),
            "audio_s": self._metrics.audio_s(),
            "last_failures": failures,
        }
        return web.json_response(body)

    async def metrics(self, _request: web.Request) -> web.Response:
        """What was counted until now, or until a moment ago."""
        began_s = self._monotonic()
        if began_s >= self._stale_at_s:
            self._exposition = self._metrics.exposition()
            ended_s = self._monotonic()
            self._stale_at_s = began_s + (ended_s - began_s) / MAX_METRICS_SHARE
        return web.Response(body=self._exposition, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def page(self, _request: web.Request) -> web.Response:
        page = files("utterd.ops").joinpath("status.html").read_text(encoding="utf-8")
        return web.Response(text=page, content_type="text/html", headers=_PAGE_HEADERS)


def _status_of(*, is_good: bool) -> HTTPStatus:
    return HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE


class BoundedConnections:
    """A factory of connections that allows few at once, and none for ever.

    Half a request that never ends must not cost the daemon the descriptors that it works with.

    Args:
        server: handles those that are allowed.
    """

    def __init__(self, server: web.Server) -> None:
        self._server = server

    def __call__(self) -> asyncio.Protocol:
        if len(self._server.connections) >= MAX_CONNECTIONS:
            return _Refusal()
        connection = self._server()
        asyncio.get_running_loop().call_later(CONNECTION_LIFETIME_S, connection.force_close)
        return connection


class _Refusal(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


@asynccontextmanager
async def health_server(routes: HealthRoutes, host: str, port: int) -> AsyncIterator[int]:
    """Serve for the length of the block; yields the port.

    Args:
        routes: what to answer.
        host: address to listen at.
        port: 0 takes a free one.

    Raises:
        ConfigurationError: the address can't be listened at.
    """
    runner = web.AppRunner(
        routes.application(), access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S
    )
    await runner.setup()
    try:
        if runner.server is None:
            raise RuntimeError("a runner that is set up has a server")
        try:
            server = await asyncio.get_running_loop().create_server(
                BoundedConnections(runner.server), host, port, backlog=MAX_CONNECTIONS
            )
        except OSError as error:
            raise ConfigurationError(
                f"health.port: can't listen at {host}:{port} ({error.strerror or error}). Choose"
                " another port for this instance, or health.enabled = false"
            ) from error
        # Not `async with`: since Python 3.12, its end waits for clients that hold their connection.
        # The runner's clean-up closes those.
        with closing(server):
            listening = server.sockets[0].getsockname()[1]
            log.info("health_served", host=host, port=listening)
            yield listening
    finally:
        await runner.cleanup()
