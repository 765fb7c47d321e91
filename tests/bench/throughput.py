"""How much of the engine's own speed is left at the end of the whole line."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

from aio_pika.abc import AbstractConnection
from broker import event_queue, publish_jobs
from daemon import Daemon
from proc import processor_s
from report import Row, Section
from texts import bulletins

from utterd.broker.connection import connect
from utterd.config import BrokerSettings
from utterd_schemas.events import EventType
from utterd_schemas.job import Job

TARGET_RATIO = 0.8
_ROUNDS = 4
_TEXTS_PER_ROUND = 30
_TIMEOUT_S = 120.0
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

METHOD = f"""\
Seconds of speech for each second of wall time. `utterd run` with its defaults (a worker for each
core, S3 store, WAV) gets {_TEXTS_PER_ROUND} jobs at once, of four to eight sentences each that
nobody has asked for before; the clock runs from the first publish to the last `completed` event.
The baseline is the bare `hibari-tts` in a loop over the same texts, in as many processes, of one
thread each, as the daemon has workers. Both are credited with the audio that the bare library made
of the texts. RabbitMQ, the S3 server and this client share the cores with the daemon; the bare
library has the cores to itself. Median of {_ROUNDS} rounds in turns. The baseline of the parent's
processor time is that of the bare library's processes."""


class BareLibrary:
    """Processes that speak with nothing around the library; made by `bare_library`."""

    def __init__(self, processes: Sequence[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    @property
    def processor_s(self) -> float:
        """Processor time that all of them have used."""
        return sum(processor_s(process.pid) for process in self._processes)

    async def speak(self, texts: Sequence[str]) -> tuple[float, float]:
        """Speak the texts, dealt out evenly; returns seconds of audio and of wall time."""
        count = len(self._processes)
        started_s = time.perf_counter()
        spoken_s = await asyncio.gather(
            *(_ask(process, texts[i::count]) for i, process in enumerate(self._processes))
        )
        return sum(spoken_s), time.perf_counter() - started_s


@asynccontextmanager
async def bare_library(processes: int) -> AsyncIterator[BareLibrary]:
    """Load the library that many times, for the length of the block."""
    async with AsyncExitStack() as running:
        loaded = [await running.enter_async_context(_process()) for _ in range(processes)]
        await asyncio.gather(*(_answer(process) for process in loaded))
        yield BareLibrary(loaded)


@asynccontextmanager
async def _process() -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("bare_library.py")),
        env={**os.environ, **_ONE_THREAD},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def _ask(process: asyncio.subprocess.Process, texts: Sequence[str]) -> float:
    assert process.stdin is not None
    process.stdin.write(json.dumps(texts).encode() + b"\n")
    return await _answer(process)


async def _answer(process: asyncio.subprocess.Process) -> float:
    assert process.stdout is not None
    return float(await process.stdout.readline())


async def measure_throughput(
    connection: AbstractConnection, broker: BrokerSettings, daemon: Daemon
) -> Section:
    """Compare a running daemon with the bare library.

    Args:
        connection: to publish with.
        broker: of the sandbox that the daemon works in.
        daemon: with nothing else to do.
    """
    workers = len(daemon.worker_pids)
    texts = bulletins(_ROUNDS * _TEXTS_PER_ROUND)
    daemon_rates: list[float] = []
    bare_rates: list[float] = []
    all_audio_s = parent_s = bare_processor_s = 0.0
    async with bare_library(workers) as library:
        for number in range(_ROUNDS):
            batch = texts[number * _TEXTS_PER_ROUND :][:_TEXTS_PER_ROUND]
            parent_s -= processor_s(daemon.pid)
            daemon_s = await complete_jobs(connection, broker, batch, f"bulletin-{number}")
            parent_s += processor_s(daemon.pid)
            bare_processor_s -= library.processor_s
            audio_s, bare_s = await library.speak(batch)
            bare_processor_s += library.processor_s
            daemon_rates.append(audio_s / daemon_s)
            bare_rates.append(audio_s / bare_s)
            all_audio_s += audio_s
    ratio = median(ours / bare for ours, bare in zip(daemon_rates, bare_rates, strict=True))
    rows = (
        Row(
            name=f"hibari, {workers} workers",
            figure=f"{median(daemon_rates):.0f} s/s",
            baseline=f"{median(bare_rates):.0f} s/s",
            ratio=ratio,
            target=f"ratio ≥ {TARGET_RATIO:g}",
            is_met=ratio >= TARGET_RATIO,
        ),
        Row(
            name="processor time of the daemon's parent for a second of speech",
            figure=f"{parent_s / all_audio_s * 1000:.1f} ms",
            baseline=f"{bare_processor_s / all_audio_s * 1000:.1f} ms",
            ratio=parent_s / bare_processor_s,
        ),
    )
    return Section(title="Speech through the whole line", method=METHOD, rows=rows)


async def complete_jobs(
    connection: AbstractConnection, broker: BrokerSettings, texts: Sequence[str], name: str
) -> float:
    """Seconds of wall time until the daemon has completed a job for each text."""
    jobs = [Job(text=text, job_id=f"{name}-{number}") for number, text in enumerate(texts)]
    missing = {job.job_id for job in jobs}
    async with (
        await connect(broker, "bench subscriber") as subscriber,
        event_queue(subscriber, broker) as queue,
        queue.iterator(no_ack=True) as events,
        asyncio.timeout(_TIMEOUT_S),
    ):
        started_s = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publish_jobs(connection, broker, jobs), name="publish")
            async for event in events:
                if event.type == EventType.COMPLETED:
                    missing.discard(json.loads(event.body)["job_id"])
                elif event.type == EventType.FAILED:
                    raise RuntimeError(f"a job failed: {event.body.decode()}")
                if not missing:
                    break
        return time.perf_counter() - started_s
