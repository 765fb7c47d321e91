"""Thousands of jobs through one daemon, and what grows meanwhile: python -m chaos.soak.

SOAK_JOBS, in the environment, is their number: of less than some thousands, warming up looks like a
leak. The exit status is 1 when something leaks.
"""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import numpy as np

from chaos import observed
from support.bus import Bus, open_bus
from support.daemon import Daemon
from support.place import Place
from utterd.ops.memory import resident_bytes
from utterd.sandbox import Sandbox
from utterd_schemas.events import EventType

JOBS = int(os.environ.get("SOAK_JOBS", "5000"))
WARM_UP_JOBS = min(500, JOBS // 10)
MAX_SLOPE_KB_A_JOB = 2.0
"""Whoever keeps a job's message has more than this. Workers settle in the first half."""
COUNT_SLACK = 10
"""By how much a count may differ by chance, since as many jobs are on their way at once."""

_OUTSTANDING_JOBS = 20
_SAMPLE_EVERY_JOBS = 25
_FORMATS = ("wav", "mp3", "opus", "flac", "vorbis")
_SENTENCES = (1, 1, 1, 1, 2, 4)


@dataclass(frozen=True, slots=True)
class Sample:
    """What the daemon holds at one moment.

    Attributes:
        jobs: done by then.
        resident_kb: of the parent, and of each worker.
        counts: of what must not become more.
    """

    jobs: int
    resident_kb: dict[str, float]
    counts: dict[str, int]

    @classmethod
    def take(cls, jobs: int, daemon: Daemon, place: Place) -> "Sample":
        log = daemon.log
        workers = [int(str(line["pid"])) for line in log if line["event"] == "worker_started"]
        tasks = [int(str(line["tasks"])) for line in log if line["event"] == observed.EVENT]
        pids = {"parent": daemon.pid, **{f"worker {n}": pid for n, pid in enumerate(workers)}}
        process = Path(f"/proc/{daemon.pid}")
        return cls(
            jobs=jobs,
            resident_kb={name: resident_bytes(pid) / 1024 for name, pid in pids.items()},
            counts={
                "tasks": tasks[-1],
                "threads": sum(1 for _ in (process / "task").iterdir()),
                "descriptors": sum(1 for _ in (process / "fd").iterdir()),
                "temporary files": sum(1 for _ in place.temporary.rglob("*")),
            },
        )


def jobs(count: int) -> Iterator[dict[str, object]]:
    """Jobs of some length, of which no two are equal.

    Those of the second half ask for what the first half spoke at another rate: allocators take
    memory for the longest sentence so far, and meet no longer one.
    """
    half = (count + 1) // 2
    for place in range(count):
        number = place % half
        sentence = f"Sentence number {number} of a day at the gateway. "
        yield {
            "job_id": str(uuid4()),
            "text": sentence * _SENTENCES[number % len(_SENTENCES)],
            "format": _FORMATS[number % len(_FORMATS)],
            "sample_rate_hz": 24_000 if place < half else 16_000,
        }


async def feed(bus: Bus, count: int, done: Callable[[int], None]) -> None:
    """Publish the jobs, with a bounded number on the way, and count what is completed."""
    room = asyncio.Semaphore(_OUTSTANDING_JOBS)

    async def publish() -> None:
        for job in jobs(count):
            await room.acquire()
            await bus.publish(job)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(publish(), name="publish")
        for number in itertools.count(1):
            incoming = await anext(bus.incoming_events)
            await incoming.ack()
            while incoming.type == EventType.STARTED:
                incoming = await anext(bus.incoming_events)
                await incoming.ack()
            if incoming.type != EventType.COMPLETED:
                raise RuntimeError(f"a job ended with {incoming.type}: {incoming.body!r}")
            room.release()
            done(number)
            if number == count:
                return


def slope(samples: list[Sample], name: str) -> float:
    """KB a job that a process grows by, as the line of least squares has it."""
    jobs = [sample.jobs for sample in samples]
    return float(np.polyfit(jobs, [sample.resident_kb[name] for sample in samples], 1)[0])


def report(samples: list[Sample]) -> tuple[bool, list[str]]:
    """Whether nothing leaks, and the figures."""
    first, last = samples[0], samples[-1]
    half = len(samples) // 2
    slopes = {
        name: (slope(samples, name), slope(samples[half:], name)) for name in first.resident_kb
    }
    peaks = {
        name: [max(one.counts[name] for one in part) for part in (samples[:half], samples[half:])]
        for name in first.counts
    }
    bounded = [slopes["parent"][0], *(second for _, second in slopes.values())]
    is_sound = max(bounded) <= MAX_SLOPE_KB_A_JOB and all(
        late <= early + COUNT_SLACK for early, late in peaks.values()
    )
    return is_sound, [
        f"jobs {first.jobs} to {last.jobs}:",
        *(
            f"  {name}: {first.resident_kb[name] / 1024:.1f} MB, at last"
            f" {last.resident_kb[name] / 1024:.1f} MB; {whole:+.3f} KB a job,"
            f" {second:+.3f} in the second half"
            for name, (whole, second) in slopes.items()
        ),
        *(
            f"  {name}: at most {early} in the first half, {late} in the second"
            for name, (early, late) in peaks.items()
        ),
    ]


async def main() -> int:
    samples: list[Sample] = []
    with (
        TemporaryDirectory(prefix="utterd-soak-") as directory,
        Sandbox(Path(directory) / "sandbox") as sandbox,
    ):
        place = Place.make(sandbox, Path(directory))
        daemon = Daemon(place, {}, command=("-m", "chaos.observed"))

        def done(number: int) -> None:
            if number >= WARM_UP_JOBS and number % _SAMPLE_EVERY_JOBS == 0:
                samples.append(Sample.take(number, daemon, place))

        started_s = time.monotonic()
        try:
            async with open_bus(place) as bus:
                await feed(bus, JOBS, done)
            duration_s = time.monotonic() - started_s
            daemon.terminate()
            status = await asyncio.to_thread(daemon.wait)
        finally:
            daemon.kill()
    is_sound, lines = report(samples)
    print(f"{JOBS} jobs in {duration_s:.0f} s", *lines, sep="\n")  # noqa: T201 - what it is for
    return 0 if is_sound and status == 0 else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
