"""Real daemons, each in a process of its own, on the session's sandbox."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueueIterator

from utterd.app import open_store
from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.topology import routing_key, topology
from utterd.client import ReceivedEvent, structured
from utterd.config import ENV_PREFIX, BrokerSettings, Lane, StoreSettings
from utterd.sandbox import Sandbox
from utterd.settings_sources import CONFIG_VARIABLE, environment_name
from utterd.testing.broker import with_own_names
from utterd_schemas.events import EventType

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Place:
    """Names of its own on the sandbox, for the daemons and commands of one test module."""

    broker: BrokerSettings
    store: StoreSettings
    directory: Path

    @classmethod
    def make(cls, sandbox: Sandbox, directory: Path) -> "Place":
        name = f"e2e-{uuid4().hex[:8]}"
        prefix = environment_name("store.")
        store = {
            variable.removeprefix(prefix).lower(): value
            for variable, value in sandbox.environ().items()
            if variable.startswith(prefix)
        }
        return cls(
            with_own_names(BrokerSettings(url=sandbox.amqp_url), name),
            StoreSettings(**store | {"prefix": f"{name}/"}),
            directory,
        )

    @property
    def temporary(self) -> Path:
        return self.directory / "tmp"

    def environ(self) -> dict[str, str]:
        """For a process that is to work here, and knows no other settings."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
        store = self.store.model_dump(mode="json", exclude_unset=True)
        store["secret_access_key"] = self.store.secret_access_key.get_secret_value()
        return own | {
            CONFIG_VARIABLE: os.devnull,
            "TMPDIR": str(self.temporary),
            "UTTERD_BROKER__URL": self.broker.url.get_secret_value(),
            "UTTERD_BROKER__EXCHANGES": self.broker.exchanges.model_dump_json(),
            "UTTERD_BROKER__QUEUES": self.broker.queues.model_dump_json(),
            "UTTERD_LOG__FORMAT": "json",
            **{environment_name(f"store.{name}"): str(value) for name, value in store.items()},
        }

    def utterd(
        self, *arguments: str, stdin: str = "", **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with further settings by variable."""
        return subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "utterd", *arguments],
            env=self.environ() | settings,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )


class Daemon:
    """`utterd run` in a process of its own."""

    def __init__(self, place: Place, settings: Mapping[str, str]) -> None:
        place.temporary.mkdir(exist_ok=True)
        self.log_path = place.directory / f"{uuid4().hex}.log"
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "utterd", "run"],
                env=place.environ() | settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """The exit status, once it has ended."""
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def completed(self) -> list[str]:
        """The ids of the jobs that it has completed, as its log tells."""
        return [str(line["job_id"]) for line in self.log if line["event"] == "job_completed"]

    @property
    def log(self) -> list[dict[str, object]]:
        """All events logged so far; a line that is no JSON object is an error."""
        return [json.loads(line) for line in self.log_path.read_text().splitlines()]


@dataclass
class Bus:
    """The publisher's and subscriber's side of a place."""

    place: Place
    channel: AbstractChannel
    incoming_events: AbstractQueueIterator
    incoming_dead: AbstractQueueIterator
    events: list[ReceivedEvent] = field(default_factory=list)
    dead: list[AbstractIncomingMessage] = field(default_factory=list)

    async def publish(
        self, body: bytes | Mapping[str, object], *, lane: Lane = Lane.INTERACTIVE, **properties
    ) -> None:
        """Send any bytes, or a job, with any properties."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        exchange = await self.channel.get_exchange(self.place.broker.exchanges.jobs)
        await exchange.publish(aio_pika.Message(raw, **properties), routing_key(lane))

    async def run(self, text: str, **fields: object) -> dict:
        """Publish one job; returns its completed event's data."""
        job_id = str(uuid4())
        await self.publish({"job_id": job_id, "text": text} | fields)
        return await self.completed(job_id)

    async def completed(self, job_id: str) -> dict:
        event = await self.terminal(job_id)
        assert event["type"] == EventType.COMPLETED, event
        return event["data"]

    async def terminal(self, job_id: str) -> ReceivedEvent:
        """Wait for a job's terminal event."""
        return await self.event(job_id, *(kind for kind in EventType if kind.is_terminal))

    async def event(self, job_id: str, *kinds: EventType) -> ReceivedEvent:
        """Wait for the first event of a job that is of one of these types."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for event in self.events:
                    if event["subject"] == job_id and event["type"] in kinds:
                        return event
                incoming = await anext(self.incoming_events)
                await incoming.ack()
                self.events.append(structured(incoming))

    async def buried(self, body: bytes) -> AbstractIncomingMessage:
        """Wait for the copy of a message among the dead."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for message in self.dead:
                    if message.body == body:
                        return message
                incoming = await anext(self.incoming_dead)
                await incoming.ack()
                self.dead.append(incoming)

    async def waiting(self) -> int:
        """Jobs in both lanes that no daemon has taken, or that were given back."""
        queues = self.place.broker.queues
        counts = [
            (await self.channel.declare_queue(queues.of_lane(lane), passive=True)) for lane in Lane
        ]
        return sum(queue.declaration_result.message_count for queue in counts)

    async def audio(self, data: Mapping[str, str]) -> bytes:
        """The object that a completed event tells of."""
        async with open_store(self.place.store) as objects:
            return await objects.get(data["object_name"])


@contextlib.asynccontextmanager
async def open_bus(place: Place) -> AsyncIterator[Bus]:
    async with await connect(place.broker, "e2e") as connection:
        await declare.apply(connection, topology(place.broker))
        async with connection.channel(on_return_raises=True) as channel:
            events = await channel.declare_queue(exclusive=True)
            await events.bind(place.broker.exchanges.events, "#")
            dead = await channel.get_queue(place.broker.queues.dead)
            async with events.iterator() as incoming_events, dead.iterator() as incoming_dead:
                yield Bus(place, channel, incoming_events, incoming_dead)


@pytest.fixture(scope="session")
def make_place(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Place]:
    return lambda: Place.make(sandbox, tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def place(make_place: Callable[[], Place]) -> Place:
    return make_place()


@pytest.fixture(scope="module")
def start(place: Place) -> Iterator[Callable[..., Daemon]]:
    """Start daemons in the module's place, with settings by variable; none outlives it."""
    daemons: list[Daemon] = []

    def start_one(**settings: str) -> Daemon:
        daemons.append(Daemon(place, {"UTTERD_ENGINE__WORKERS": "1"} | settings))
        return daemons[-1]

    yield start_one
    for daemon in daemons:
        daemon.kill()


@pytest.fixture(scope="module")
def daemon(start: Callable[..., Daemon]) -> Daemon:
    """The daemon that a module's tests share."""
    return start()


@pytest.fixture
async def bus(place: Place) -> AsyncIterator[Bus]:
    async with open_bus(place) as bus:
        yield bus
