"""An HTTP proxy in front of an S3 server that breaks as stores break."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

SLOW_S = 0.7
"""How long `Fault.SLOW` holds each request up."""

_HEAD_LIMIT_BYTES = 64 * 1024


class Fault(Enum):
    """What goes wrong. The values are HTTP status and S3's code, where there is an answer."""

    SLOW_DOWN = (503, "SlowDown")
    ACCESS_DENIED = (403, "AccessDenied")
    NO_SUCH_BUCKET = (404, "NoSuchBucket")
    CLOCK_SKEWED = (403, "RequestTimeTooSkewed")
    RESET = "the connection breaks off in the middle of the body"
    BLACK_HOLE = "the request is taken and never answered"
    SLOW = "each request is held up"


@dataclass(frozen=True, slots=True)
class Record:
    """One request that came.

    Attributes:
        at_s: on the monotonic clock.
        method: of HTTP.
        path: bucket and object.
        fault: what went wrong with it, if anything.
    """

    at_s: float
    method: str
    path: str
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: str
    headers: Mapping[bytes, bytes]
    head: bytes
    body_bytes: int


class S3Proxy:
    """Passes requests on until told to fail.

    It adds what the server behind it lacks: a conditional put is refused with 412 when the
    object has come by before.

    Attributes:
        fault: what goes wrong with requests from now on.
        records: every request so far.
    """

    def __init__(self, endpoint_url: str) -> None:
        address = urlsplit(endpoint_url)
        self._upstream = (address.hostname, address.port)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._stored: set[str] = set()
        self._puts = asyncio.Lock()
        self.fault: Fault | None = None
        self._methods: frozenset[str] = frozenset()
        self._left: int | None = None
        self.records: list[Record] = []

    @property
    def endpoint_url(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    def break_down(self, fault: Fault, *methods: str, times: int | None = None) -> None:
        """Fail from now on.

        Args:
            fault: how.
            methods: the requests that fail; by default all.
            times: how many of them; by default without end.
        """
        self.fault, self._methods, self._left = fault, frozenset(methods), times

    def heal(self) -> None:
        """Work again, and break off what waits in the black hole."""
        self.fault = None
        for connection in self._connections:
            connection.cancel()

    def requests(self, method: str, fault: Fault | None) -> list[Record]:
        """Those of one kind that met one fault, or none."""
        return [one for one in self.records if one.method == method and one.fault is fault]

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["S3Proxy"]:
        """Listen on a port of the loopback for the length of the block."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=_HEAD_LIMIT_BYTES
        )
        try:
            yield self
        finally:
            self._server.close()
            self.heal()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # One request a connection keeps this a proxy and not a web server.
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._answer(reader, writer)
        finally:
            self._connections.discard(task)
            writer.transport.abort() if task.cancelling() else writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = _parse(await reader.readuntil(b"\r\n\r\n"))
        fault = self._next_fault(request.method)
        self.records.append(Record(time.monotonic(), request.method, request.target, fault))
        if request.headers.get(b"expect", b"").lower() == b"100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if fault is Fault.RESET:
            await reader.readexactly(request.body_bytes // 2)
            writer.transport.abort()
            return
        body = await reader.readexactly(request.body_bytes)
        match fault:
            case None:
                writer.write(await self._pass_on(request, body))
            case Fault.BLACK_HOLE:
                await asyncio.get_running_loop().create_future()
            case Fault.SLOW:
                await asyncio.sleep(SLOW_S)
                writer.write(await self._pass_on(request, body))
            case _:
                status, code = fault.value
                writer.write(_refusal(request.method, status, code))
        await writer.drain()

    def _next_fault(self, method: str) -> Fault | None:
        if self.fault is None or (self._methods and method not in self._methods):
            return None
        fault = self.fault
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self.fault = None
        return fault

    async def _pass_on(self, request: _Request, body: bytes) -> bytes:
        if request.method != "PUT":
            return await self._ask_upstream(request, body)
        async with self._puts:
            if b"if-none-match" in request.headers and request.target in self._stored:
                return _refusal("PUT", 412, "PreconditionFailed")
            # Not to be torn apart: what the server has stored must be known here.
            answer = await asyncio.shield(self._ask_upstream(request, body))
            if answer.startswith(b"HTTP/1.1 200"):
                self._stored.add(request.target)
            return answer

    async def _ask_upstream(self, request: _Request, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self._upstream)
        try:
            writer.write(request.head + body)
            return await reader.read()
        finally:
            writer.close()


def _parse(head: bytes) -> _Request:
    request_line, *lines = head.rstrip(b"\r\n").split(b"\r\n")
    method, target, _ = request_line.decode("ascii").split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)
    }
    # The connection ends with the answer, and the body goes along without being asked for.
    kept = [line for line in lines if not line.lower().startswith((b"connection:", b"expect:"))]
    return _Request(
        method=method,
        target=target,
        headers=headers,
        head=b"\r\n".join([request_line, *kept, b"Connection: close", b"", b""]),
        body_bytes=int(headers.get(b"content-length", b"0")),
    )


def _refusal(method: str, status: int, code: str) -> bytes:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
    head = (
        f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode("ascii")
    return head if method == "HEAD" else head + body
