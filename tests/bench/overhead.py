"""What a job costs the daemon beside its synthesis."""

import asyncio
import itertools
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from aio_pika import Message
from aio_pika.abc import AbstractConnection
from bare_line import bare_line
from broker import (
    BARE_QUEUE,
    bare_consumer,
    declare_bare_queue,
    event_queue,
    publish_all,
    publish_jobs,
)
from pydantic import SecretStr
from report import Row, Section
from texts import notices

from utterd.app import make_announcer, make_planner, make_runner, make_spool, open_store
from utterd.broker.consumer import Consumer
from utterd.broker.message import Delivery
from utterd.broker.publisher import Publisher
from utterd.config import BrokerSettings, Settings, StoreSettings
from utterd.environment import Environment
from utterd.interruptions import Interruptions
from utterd.offload import Offload
from utterd.ops.cpu import plan_workers, usable_cores
from utterd.ops.metrics import Metrics
from utterd.ops.tracing import NoTracing
from utterd.testing.engine import FixedSpeaker
from utterd_schemas.audio import AudioFormat
from utterd_schemas.job import Job

TARGET_RATIO = 0.5
_ROUNDS = 5
_JOBS = 300
_BARE_MESSAGES = 600
_WIDE_PREFETCH = 8
_WIDE_ROUNDS = 3
_EVENT_BYTES = 1100
# The queue of a subscriber who is slow, cut short so that it does not grow with the run.
_EVENTS_KEPT = 1000
_DRAIN_TIMEOUT_S = 10.0

METHOD = f"""\
Jobs through the daemon's own parts, tied together in this process as `utterd run` does it:
consumer, runner, publisher, filesystem store (not waiting for the disk), WAV. In place of the
engine's workers stands one that returns the same 2 s of audio at 24 kHz at once, so quality gates,
trimming, encoding and hashing are paid for. A new job's audio is not in the store, and it has two
events, `started` and `completed`; a cached job has the second one only. The baseline is an aio-pika
consumer on a queue of the same type and arguments, with the same prefetch and also on two
connections, that publishes one confirmed event for each message and acks it: as a loop over the
queue, and as a callback that works on as many messages at once as the prefetch lets through. The
barest line shows what is left to save: a script that encodes, hashes and stores the same audio and
publishes two confirmed events for each message, without any check, text front end, log or metric.
All is published before the clock starts, and one subscriber's queue is bound to the events. Median
of {_ROUNDS} rounds in turns ({_WIDE_ROUNDS} at the larger prefetch), {_JOBS} jobs and
{_BARE_MESSAGES} messages each.

The prefetch is the number of engine slots, one for each usable core. Processor time is that of this
process, without the broker's."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast one round went.

    Attributes:
        per_second: things done.
        processor_ms: of this process, for each thing.
    """

    per_second: float
    processor_ms: float


class Span:
    """Measures from the first start to the last end of a known number of things.

    Args:
        count: how many.

    Attributes:
        finished: set at the last end.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._done = 0
        self._started_s: tuple[float, float] | None = None
        self._duration_s = (0.0, 0.0)
        self.finished = asyncio.Event()

    def start(self) -> None:
        if self._started_s is None:
            self._started_s = time.perf_counter(), time.process_time()

    def done(self) -> None:
        self._done += 1
        if self._done == self._count and self._started_s is not None:
            started_s, processor_started_s = self._started_s
            self._duration_s = (
                time.perf_counter() - started_s,
                time.process_time() - processor_started_s,
            )
            self.finished.set()

    @property
    def pace(self) -> Pace:
        duration_s, processor_s = self._duration_s
        return Pace(self._count / duration_s, processor_s / self._count * 1000)


async def measure_overhead(connection: AbstractConnection, amqp_url: str) -> Section:
    """Compare the line with the bare consumer.

    Args:
        connection: to publish with.
        amqp_url: of a broker whose topology stands, without any daemon.
    """
    broker = BrokerSettings(url=SecretStr(amqp_url))
    await declare_bare_queue(connection, broker)
    slots = plan_workers(usable_cores()).slots
    async with event_queue(connection, broker, max_length=_EVENTS_KEPT):
        with TemporaryDirectory() as directory:
            store = StoreSettings(kind="filesystem", directory=Path(directory), durable=False)
            compare = _Comparison(connection, Settings(broker=broker, store=store))
            rows = (
                *await compare.rows(slots, rounds=_ROUNDS, target=TARGET_RATIO),
                *await compare.rows(_WIDE_PREFETCH, rounds=_WIDE_ROUNDS, target=None),
            )
    return Section(title="Overhead of a job", method=METHOD, rows=rows)


class _Comparison:
    """Runs the line and the bare consumer in turns.

    Args:
        connection: to publish with.
        settings: of the line; no text is sent to its store twice.
    """

    def __init__(self, connection: AbstractConnection, settings: Settings) -> None:
        self._connection = connection
        self._settings = settings
        self._numbers = itertools.count(1, _JOBS)

    async def rows(self, prefetch: int, *, rounds: int, target: float | None) -> tuple[Row, ...]:
        """Compare throughput and processor time at one prefetch."""
        new: list[Pace] = []
        cached: list[Pace] = []
        loop: list[Pace] = []
        callback: list[Pace] = []
        barest: list[Pace] = []
        for _ in range(rounds):
            first = next(self._numbers)
            loop.append(await self._bare(prefetch, concurrent=False))
            new.append(await self._line(prefetch, first, "new"))
            callback.append(await self._bare(prefetch, concurrent=True))
            cached.append(await self._line(prefetch, first, "cached"))
            barest.append(await self._barest_line(prefetch))
        return (
            *_rows(f"new jobs against a loop, prefetch {prefetch}", new, loop, target),
            *_rows(f"new jobs against callbacks, prefetch {prefetch}", new, callback, None),
            *_rows(f"cached jobs against a loop, prefetch {prefetch}", cached, loop, None),
            *_rows(f"the barest line against a loop, prefetch {prefetch}", barest, loop, None),
        )

    async def _bare(self, prefetch: int, *, concurrent: bool) -> Pace:
        span = await self._bare_messages()
        async with bare_consumer(
            self._settings.broker,
            prefetch=prefetch,
            payload=b"x" * _EVENT_BYTES,
            concurrent=concurrent,
            on_start=span.start,
            on_done=span.done,
        ):
            await span.finished.wait()
        return span.pace

    async def _barest_line(self, prefetch: int) -> Pace:
        span = await self._bare_messages()
        with TemporaryDirectory() as directory:
            async with bare_line(
                self._settings.broker,
                Path(directory),
                prefetch=prefetch,
                event_bytes=_EVENT_BYTES,
                on_start=span.start,
                on_done=span.done,
            ):
                await span.finished.wait()
        return span.pace

    async def _bare_messages(self) -> Span:
        """Fill the bare queue; what to measure its emptying with."""
        messages = (
            Message(text.encode(), message_id=str(number))
            for number, text in enumerate(notices(range(_BARE_MESSAGES)))
        )
        await publish_all(self._connection, "", BARE_QUEUE, messages)
        return Span(_BARE_MESSAGES)

    async def _line(self, prefetch: int, first: int, name: str) -> Pace:
        jobs = (
            Job(text=text, format=AudioFormat.WAV, job_id=f"{name}-{first + number}")
            for number, text in enumerate(notices(range(first, first + _JOBS)))
        )
        await publish_jobs(self._connection, self._settings.broker, jobs)
        span = Span(_JOBS)
        await _consume(self._settings, prefetch, span)
        return span.pace


def _rows(name: str, line: list[Pace], bare: list[Pace], target: float | None) -> tuple[Row, Row]:
    ratio = median(
        ours.per_second / theirs.per_second for ours, theirs in zip(line, bare, strict=True)
    )
    line_ms = median(pace.processor_ms for pace in line)
    bare_ms = median(pace.processor_ms for pace in bare)
    return (
        Row(
            name=f"{name}: a second",
            figure=f"{median(pace.per_second for pace in line):.0f}",
            baseline=f"{median(pace.per_second for pace in bare):.0f}",
            ratio=ratio,
            target="" if target is None else f"ratio ≥ {target:g}",
            is_met=None if target is None else ratio >= target,
        ),
        Row(
            name=f"{name}: processor time of each",
            figure=f"{line_ms:.1f} ms",
            baseline=f"{bare_ms:.1f} ms",
            ratio=line_ms / bare_ms,
        ),
    )


async def _consume(settings: Settings, prefetch: int, span: Span) -> None:
    """Work on jobs as `utterd run` does, until all that the span counts are settled."""
    environment, interruptions, tracing = Environment(), Interruptions(), NoTracing()
    publisher = Publisher(settings.broker, environment)
    async with AsyncExitStack() as parts:
        objects = await parts.enter_async_context(open_store(settings.store))
        encoding = await parts.enter_async_context(Offload("encode", threads=prefetch))
        tasks = await parts.enter_async_context(asyncio.TaskGroup())
        publishing = tasks.create_task(publisher.run(), name="publisher")
        runner = make_runner(
            settings,
            planner=make_planner(settings),
            speaker=FixedSpeaker(),
            objects=objects,
            spool=make_spool(settings.store, encoding),
            sink=publisher,
            announcer=make_announcer(settings, publisher, tracing),
            interruptions=interruptions,
            metrics=Metrics(),
            tracing=tracing,
            encoding=encoding,
            tasks=tasks,
        )

        async def handle(delivery: Delivery) -> None:
            span.start()
            await runner.run(delivery)
            span.done()

        consumer = Consumer(
            settings.broker,
            prefetch=prefetch,
            handle=handle,
            handle_lapsed=runner.run,
            tasks=tasks,
            environment=environment,
            interruptions=interruptions,
            drain_timeout_s=_DRAIN_TIMEOUT_S,
        )
        await consumer.run(span.finished)
        publishing.cancel()
