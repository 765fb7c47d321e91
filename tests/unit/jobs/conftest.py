"""A line of parts that need no broker, no model and no disk."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from utterd.broker.message import Message
from utterd.config import Lane
from utterd.engines.protocol import Engine, EngineInfo, EngineOptions, Voice
from utterd.environment import Environment
from utterd.errors import ConfigurationError
from utterd.interruptions import Interruptions
from utterd.jobs.announce import Announcer
from utterd.jobs.plan import Plan, Planner
from utterd.jobs.progress import Progress
from utterd.jobs.runner import Runner
from utterd.jobs.settle import Settler
from utterd.jobs.singleflight import SingleFlight
from utterd.offload import Offload
from utterd.ops.metrics import Metrics
from utterd.ops.tracing import NoTracing
from utterd.store.reporting import ReportingObjectStore
from utterd.store.spool import Spool
from utterd.testing.broker import InMemoryBroker, InMemoryDelivery, Settlement
from utterd.testing.engine import SAMPLE_RATE_HZ, FixedSpeaker
from utterd.testing.store import InMemoryObjectStore
from utterd.text.reading import Reading, read_sentences
from utterd_schemas.audio import AudioFormat
from utterd_schemas.job import Job

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)

RETRY_DELAYS_S = (10, 60)

INFO = EngineInfo(
    name="tone",
    version="1",
    bundle="b" * 64,
    sample_rate_hz=SAMPLE_RATE_HZ,
    voices=(
        Voice(name="low", languages=("en",), description="a low tone"),
        Voice(name="high", languages=("en", "zh"), description="a high tone"),
    ),
)


class ToneFrontEnd:
    """An engine's package that reads a text as it stands, save for one price."""

    def describe(self, options: EngineOptions) -> EngineInfo:  # noqa: ARG002 - the protocol's
        return INFO

    def read(self, text: str, *, language: str, normalize: bool) -> list[Reading]:  # noqa: ARG002 - the protocol's
        def spoken_form(text: str) -> str:
            return text.replace("$5", "five dollars") if normalize else text

        return read_sentences(text, max_chars=60, spoken_form=spoken_form)

    def load(self, options: EngineOptions, *, threads: int) -> Engine:  # noqa: ARG002 - the protocol's
        raise ConfigurationError(f"there is no engine to load with {threads} threads")


@dataclass
class Clock:
    """Stands still until a test moves it."""

    now: datetime = NOW


@dataclass(frozen=True)
class Line:
    """A runner, and what it was made of."""

    runner: Runner
    broker: InMemoryBroker
    speaker: FixedSpeaker
    objects: InMemoryObjectStore
    spool: Spool
    environment: Environment
    interruptions: Interruptions
    clock: Clock

    def deliver(
        self, body: bytes, lane: Lane = Lane.INTERACTIVE, **properties: object
    ) -> InMemoryDelivery:
        return self.broker.deliver(Message(body=body, **properties), lane)

    async def run(
        self, body: bytes, lane: Lane = Lane.INTERACTIVE, **properties: object
    ) -> Settlement | None:
        """Take one message down the whole line; returns how it was settled."""
        delivery = self.deliver(body, lane, **properties)
        await self.runner.run(delivery)
        return delivery.settlement

    @property
    def outcomes(self) -> list[str]:
        return [event.type.outcome for event in self.broker.events]


OpenLine = Callable[..., AbstractAsyncContextManager[Line]]


@pytest.fixture
def planner() -> Planner:
    return Planner(
        info=INFO,
        module=ToneFrontEnd(),
        default_voice="tone/low",
        aliases={"default": "tone/low", "bright": "tone/high"},
        default_format=AudioFormat.WAV,
        max_text_chars=1000,
        max_pauses_s=600.0,
        prefix="speech/",
    )


@pytest.fixture
def plan(planner: Planner) -> Plan:
    """Two sentences, with marks."""
    return planner.plan(Job(text="Hello there. How are you?", marks=("sentence",)))


@pytest.fixture
def make_delivery():
    """A delivery of a body and properties."""

    def make(body: bytes, **properties: object) -> InMemoryDelivery:
        return InMemoryBroker().deliver(Message(body=body, **properties))

    return make


@pytest.fixture
def open_line(planner: Planner, tmp_path: Path) -> OpenLine:
    """Open a line whose parts a test may replace by name."""

    @asynccontextmanager
    async def line(
        speaker: FixedSpeaker | None = None,
        objects: InMemoryObjectStore | None = None,
        broker: InMemoryBroker | None = None,
        spool_max_bytes: int = 10_000_000,
        *,
        tells_progress: bool = False,
        **replaced: object,
    ) -> AsyncIterator[Line]:
        speaker, objects = speaker or FixedSpeaker(), objects or InMemoryObjectStore()
        broker = broker or InMemoryBroker()
        environment, interruptions, clock = Environment(), Interruptions(), Clock()
        async with (
            Offload("encode", threads=1) as encoding,
            Offload("spool", threads=1) as files,
            asyncio.TaskGroup() as tasks,
        ):
            spool = Spool(tmp_path / "spool", files, max_bytes=spool_max_bytes)
            announcer = replaced.pop("announcer", None) or Announcer(
                sink=broker, source="/test", now=lambda: NOW
            )
            reporting = ReportingObjectStore(objects, environment)
            metrics, tracing = Metrics(), replaced.get("tracing", NoTracing())
            links_s = replaced.get("presign_expires_s")
            parts = {
                "planner": planner,
                "speaker": speaker,
                "objects": reporting,
                "settler": Settler(
                    sink=broker,
                    announcer=announcer,
                    metrics=metrics,
                    tracing=tracing,
                    retry_delays_s=RETRY_DELAYS_S,
                ),
                "progress": Progress(
                    announcer=announcer,
                    objects=reporting,
                    encoding=encoding,
                    is_always_told=tells_progress,
                    presign_expires_s=links_s,
                ),
                "flights": SingleFlight(tasks),
                "encoding": encoding,
                "now": lambda: clock.now,
                "monotonic": time.monotonic,
                "max_message_bytes": 100_000,
                "job_timeout_s": 10.0,
                "work_timeout_s": 100.0,
                "spool": spool,
                "interruptions": interruptions,
                "metrics": metrics,
                "tracing": tracing,
            }
            runner = Runner(**(parts | replaced))
            yield Line(runner, broker, speaker, objects, spool, environment, interruptions, clock)

    return line
