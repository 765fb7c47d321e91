import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from urllib.parse import urlsplit
from uuid import uuid4

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from pydantic import JsonValue, SecretStr

from support.management import Management as HttpApi
from utterd.backoff import FullJitter
from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.consumer import Consumer
from utterd.broker.event import Event
from utterd.broker.message import Delivery
from utterd.broker.publisher import Publisher
from utterd.broker.topology import routing_key, topology
from utterd.config import BrokerSettings, Lane
from utterd.environment import Environment
from utterd.interruptions import Interruptions
from utterd.sandbox import RabbitNode, Sandbox
from utterd.sandbox.ports import LOOPBACK
from utterd.sandbox.rabbitmq import find_rabbitmq_server
from utterd_schemas.events import EventType

SHORT_DELAYS = FullJitter(base_s=0.02, cap_s=0.2)


class Management(HttpApi):
    """RabbitMQ's HTTP API, and what has connected since this object was made."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._since_ms = time.time() * 1000

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

    async def close_connections(self, name: str) -> int:
        found = await self.connections(name)
        for connection in found:
            await self.request("DELETE", "connections", connection["name"])
        return len(found)

    async def consumer(self, queue: str) -> dict[str, JsonValue]:
        """The consumer of a queue; waits until there is one, and its channel is known, too."""
        while True:
            for consumer in await self.request("GET", "consumers", "/"):
                if consumer["queue"]["name"] == queue and consumer["channel_details"]:
                    return consumer


@pytest.fixture
def management(sandbox: Sandbox) -> Management:
    return Management(sandbox.management_url)


class NodeControl:
    """The sandbox's `rabbitmqctl`."""

    def __init__(self, node: RabbitNode) -> None:
        self._environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(node.directory),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(node.ports.epmd),
            "RABBITMQ_NODENAME": "utterd-sandbox@localhost",
        }

    async def run(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            find_rabbitmq_server().with_name("rabbitmqctl"),
            "--quiet",
            *arguments,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, arguments
        return out.decode().strip()

    @asynccontextmanager
    async def memory_alarm(self) -> AsyncIterator[None]:
        """No memory is left for messages until the block ends."""
        await self.run("set_vm_memory_high_watermark", "absolute", "1")
        try:
            yield
        finally:
            await self.run("set_vm_memory_high_watermark", "absolute", "512MB")

    @asynccontextmanager
    async def impatient(self, timeout_ms: int) -> AsyncIterator[None]:
        """Channels that open in this block may keep a delivery unsettled for so long."""
        wish = {"consumer_timeout": timeout_ms, "channel_tick_interval": 500}
        before = {name: await self._variable(name) for name in wish}
        await self._set_variables(wish)
        try:
            yield
        finally:
            await self._set_variables(before)

    @asynccontextmanager
    async def frames_of(self, max_bytes: int) -> AsyncIterator[None]:
        """Connections that open in this block have frames of at most so many bytes."""
        before = await self._variable("frame_max")
        await self._set_variables({"frame_max": max_bytes})
        try:
            yield
        finally:
            await self._set_variables({"frame_max": before})

    async def _variable(self, name: str) -> int:
        value = await self.run("eval", f"{{ok, V}} = application:get_env(rabbit, {name}), V.")
        return int(value)

    async def _set_variables(self, values: Mapping[str, int]) -> None:
        calls = [f"application:set_env(rabbit, {name}, {value})" for name, value in values.items()]
        await self.run("eval", ", ".join(calls) + ".")


@pytest.fixture
def node_control(sandbox: Sandbox) -> NodeControl:
    return NodeControl(sandbox.rabbitmq)


class Proxy:
    """Stands between a client and the broker, and can be told to fail.

    Attributes:
        accepting: whether new connections are passed on, or closed at once.
        accepted: how many were passed on.
        cut_after_bytes: of the broker's; where the next connection breaks off.
        claims_4_3: whether the broker seems to be of RabbitMQ 4.3.
    """

    def __init__(self, broker_url: str) -> None:
        self._broker = urlsplit(broker_url)
        self._server: asyncio.Server | None = None
        self._pairs: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self.accepting = True
        self.accepted = 0
        self.cut_after_bytes: int | None = None
        self.claims_4_3 = False
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

    def say(self, frame: bytes) -> None:
        """Put words into the broker's mouth, on all connections."""
        for client, _ in self._pairs.values():
            client.write(frame)

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
                writer.write(_as_4_3(data) if self.claims_4_3 else data)
                if budget is not None:
                    budget -= len(data)
        writer.close()


def _as_4_3(data: bytes) -> bytes:
    """The broker's first frame with another version, which has to be as long as its own."""
    return re.sub(
        rb"(?<=versionS\x00\x00\x00.)[0-9][0-9.]+",
        lambda version: b"4.3.".ljust(len(version[0]), b"0"),
        data,
        flags=re.DOTALL,
    )


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

    async def until_ready(self, queue_name: str, count: int) -> None:
        """Wait until so many messages wait in a queue."""
        while await self.ready(queue_name) != count:
            pass

    async def declare(self) -> None:
        """Bring back whatever of the topology is gone."""
        async with await connect(self.settings, "repair") as connection:
            await declare.apply(connection, topology(self.settings))


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
        self.environment: Environment = kw.get("environment") or Environment()
        self.interruptions = Interruptions()

        async def handle_and_tell(delivery: Delivery) -> None:
            self.deliveries.put_nowait(delivery)
            await handle(delivery)

        async def hand_on(delivery: Delivery) -> None:
            """To the dead."""
            await delivery.reject()

        self.consumer = Consumer(
            settings,
            prefetch=kw.get("prefetch", 2),
            handle=handle_and_tell,
            handle_lapsed=kw.get("handle_lapsed") or hand_on,
            tasks=tasks,
            environment=self.environment,
            interruptions=self.interruptions,
            drain_timeout_s=kw.get("drain_timeout_s", 10.0),
            delays=kw.get("delays", SHORT_DELAYS),
            hold_off=kw.get("hold_off"),
            order_checks=kw.get("order_checks", SHORT_DELAYS),
        )
        self.running = tasks.create_task(self.consumer.run(self.stop), name="consumer")


@pytest.fixture
def consuming():
    """A context manager that runs a consumer until its block ends."""

    @asynccontextmanager
    async def run(
        settings: BrokerSettings, handle: Handler, *, until_consuming: bool = True, **options
    ) -> AsyncIterator[RunningConsumer]:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            running = RunningConsumer(settings, handle, tasks, **options)
            if until_consuming:
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
        settings: BrokerSettings,
        delays: FullJitter = SHORT_DELAYS,
        environment: Environment | None = None,
    ) -> AsyncIterator[Publisher]:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            publisher = Publisher(settings, environment or Environment(), delays)
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
