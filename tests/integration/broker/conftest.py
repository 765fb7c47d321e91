import asyncio
import base64
import json
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit
from uuid import uuid4

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from pydantic import JsonValue, SecretStr

from utterd.backoff import FullJitter
from utterd.broker.connection import connect
from utterd.broker.consumer import Consumer
from utterd.broker.event import Event
from utterd.broker.message import Delivery
from utterd.broker.publisher import Publisher
from utterd.broker.topology import routing_key
from utterd.config import BrokerSettings, Lane
from utterd.sandbox import Sandbox
from utterd.sandbox.rabbitmq import PASSWORD, USER
from utterd_schemas.events import EventType

SHORT_DELAYS = FullJitter(base_s=0.02, cap_s=0.2)


class Management:
    """RabbitMQ's HTTP API, and what has connected since this object was made."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._since_ms = time.time() * 1000
        # No proxies: one of the environment doesn't know this machine's loopback.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._authorization = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    async def request(self, method: str, *path: str, body: JsonValue = None):
        return await asyncio.to_thread(self._request, method, path, body)

    def _request(self, method: str, path: tuple[str, ...], body: JsonValue):
        request = urllib.request.Request(  # noqa: S310 - the sandbox's own address
            "/".join((self._url, "api", *(quote(part, safe="") for part in path))),
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": self._authorization, "Content-Type": "application/json"},
        )
        with self._opener.open(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    async def connections(self, name: str) -> list[dict[str, str]]:
        """Those that a client of this name opened; waits until there is one."""
        while True:
            found = [
                connection
                for connection in await self.request("GET", "connections")
                if connection.get("client_properties", {}).get("connection_name") == name
                and connection.get("connected_at", 0) >= self._since_ms
            ]
            if found:
                return found

    async def close_connections(self, name: str) -> None:
        for connection in await self.connections(name):
            await self.request("DELETE", "connections", connection["name"])

    async def consumer(self, queue: str) -> dict[str, JsonValue]:
        """The consumer of a queue; waits until there is one."""
        while True:
            for consumer in await self.request("GET", "consumers", "/"):
                if consumer["queue"]["name"] == queue:
                    return consumer


@pytest.fixture
def management(sandbox: Sandbox) -> Management:
    return Management(sandbox.management_url)


class Proxy:
    """Stands between a client and the broker, and can be told to fail.

    Attributes:
        accepting: whether new connections are passed on, or closed at once.
        accepted: how many were passed on.
        cut_after_bytes: of the broker's; where the next connection breaks off.
    """

    def __init__(self, broker_url: str) -> None:
        self._broker = urlsplit(broker_url)
        self._server: asyncio.Server | None = None
        self._pairs: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self.accepting = True
        self.accepted = 0
        self.cut_after_bytes: int | None = None
        self._refused = 0
        self._speaking = asyncio.Event()
        self._speaking.set()
        self._refusals = asyncio.Condition()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        self.speak()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return self._broker._replace(
            netloc=f"{self._broker.username}:{self._broker.password}@127.0.0.1:{port}"
        ).geturl()

    def cut(self) -> None:
        """Break all connections off, as a pulled cable does in the end."""
        for writers in self._pairs.values():
            for writer in writers:
                writer.transport.abort()

    def silence(self) -> None:
        """Hold back what the broker says from now on."""
        self._speaking.clear()

    def speak(self) -> None:
        """Let through what the broker said meanwhile, and what it says from now on."""
        self._speaking.set()

    async def refusals(self, count: int) -> None:
        """Wait until so many connections were closed at once."""
        async with self._refusals:
            await self._refusals.wait_for(lambda: self._refused >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.accepting:
            writer.close()
            async with self._refusals:
                self._refused += 1
                self._refusals.notify_all()
            return
        self.accepted += 1
        budget, self.cut_after_bytes = self.cut_after_bytes, None
        assert self._broker.port is not None
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._broker.port)
        task = asyncio.current_task()
        assert task is not None
        self._pairs[task] = (writer, broker_writer)
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass_on(reader, broker_writer))
                ways.create_task(self._answer(broker_reader, writer, budget))
        finally:
            del self._pairs[task]

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int | None
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536 if budget is None else budget):
                await self._speaking.wait()
                writer.write(data)
                if budget is not None:
                    budget -= len(data)
        writer.close()


@pytest.fixture
async def proxy(sandbox: Sandbox) -> AsyncIterator[Proxy]:
    proxy = Proxy(sandbox.amqp_url)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
def through_proxy(settings: BrokerSettings, proxy: Proxy) -> BrokerSettings:
    """The test's settings, by way of the proxy."""
    return settings.model_copy(update={"url": SecretStr(proxy.url)})


class Wire:
    """A publisher's and a subscriber's view of the broker, without utterd's code."""

    def __init__(self, settings: BrokerSettings, channel: AbstractChannel) -> None:
        self.settings = settings
        self.channel = channel

    async def publish(self, body: bytes, lane: Lane = Lane.INTERACTIVE, **properties) -> None:
        exchange = await self.channel.get_exchange(self.settings.exchanges.jobs, ensure=False)
        await exchange.publish(aio_pika.Message(body, **properties), routing_key(lane))

    async def subscribe(self, pattern: str = "#", **arguments: str | int) -> str:
        """A new queue that events go to; returns its name."""
        queue = await self.channel.declare_queue(exclusive=True, arguments=arguments or None)
        await queue.bind(self.settings.exchanges.events, pattern)
        return queue.name

    async def next(self, queue_name: str) -> AbstractIncomingMessage:
        """The next message of a queue, taken off it."""
        queue = await self.channel.get_queue(queue_name, ensure=False)
        async with queue.iterator() as messages:
            async for message in messages:
                await message.ack()
                return message
        raise AssertionError("the channel was closed")

    async def ready(self, queue_name: str) -> int:
        """How many messages wait in a queue; those in a consumer's hand don't count."""
        queue = await self.channel.declare_queue(queue_name, passive=True)
        return queue.declaration_result.message_count or 0


@pytest.fixture
async def wire(settings: BrokerSettings) -> AsyncIterator[Wire]:
    async with await connect(settings, "test") as connection, connection.channel() as channel:
        await channel.set_qos(prefetch_count=1)
        yield Wire(settings, channel)


Handler = Callable[[Delivery], Awaitable[None]]


class RunningConsumer:
    """A consumer, the jobs that it took, and the means to stop it."""

    def __init__(self, settings: BrokerSettings, handle: Handler, tasks: asyncio.TaskGroup, **kw):
        self.stop = asyncio.Event()
        self.deliveries: asyncio.Queue[Delivery] = asyncio.Queue()

        async def handle_and_tell(delivery: Delivery) -> None:
            self.deliveries.put_nowait(delivery)
            await handle(delivery)

        self.consumer = Consumer(
            settings,
            prefetch=kw.get("prefetch", 2),
            handle=handle_and_tell,
            tasks=tasks,
            drain_timeout_s=kw.get("drain_timeout_s", 10.0),
            delays=SHORT_DELAYS,
        )
        self.running = tasks.create_task(self.consumer.run(self.stop), name="consumer")


@pytest.fixture
def consuming():
    """A context manager that runs a consumer until its block ends."""

    @asynccontextmanager
    async def run(
        settings: BrokerSettings, handle: Handler, **options
    ) -> AsyncIterator[RunningConsumer]:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            running = RunningConsumer(settings, handle, tasks, **options)
            await running.consumer.consuming.wait()
            try:
                yield running
            finally:
                running.stop.set()
                await running.running

    return run


@pytest.fixture
def publishing():
    """A context manager that runs a publisher until its block ends."""

    @asynccontextmanager
    async def run(
        settings: BrokerSettings, delays: FullJitter = SHORT_DELAYS
    ) -> AsyncIterator[Publisher]:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            publisher = Publisher(settings, delays)
            running = tasks.create_task(publisher.run(), name="publisher")
            yield publisher
            running.cancel()

    return run


@pytest.fixture
def make_event():
    def make(kind: EventType = EventType.COMPLETED, **fields) -> Event:
        values = {
            "id": uuid4(),
            "source": "/test",
            "subject": "job-1",
            "time": datetime.now(UTC),
            "data": b'{"job_id": "job-1"}',
        }
        return Event(type=kind, **(values | fields))

    return make


@pytest.fixture
async def restricted_user(management: Management):
    """Makes settings for a user with the given rights to configure, write and read."""
    name = f"user-{uuid4().hex[:12]}"
    await management.request("PUT", "users", name, body={"password": "pass-word", "tags": ""})

    async def with_rights(
        settings: BrokerSettings, configure: str, write: str, read: str
    ) -> BrokerSettings:
        rights = {"configure": configure, "write": write, "read": read}
        await management.request("PUT", "permissions", "/", name, body=rights)
        host = settings.url.get_secret_value().rpartition("@")[2]
        return settings.model_copy(update={"url": SecretStr(f"amqp://{name}:pass-word@{host}")})

    yield with_rights
    await management.request("DELETE", "users", name)
