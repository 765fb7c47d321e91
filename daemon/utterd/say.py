"""Speaks one job into a file or a pipe, with neither broker nor store."""

import asyncio
import sys
from pathlib import Path
from typing import TypedDict

from utterd.app import make_engine_host, make_planner
from utterd.audio.formats import FORMATS
from utterd.config import Settings
from utterd.engines.host import engine_host
from utterd.engines.pace import Pace
from utterd.jobs.finish import Finished, finish
from utterd.jobs.speak import speak
from utterd_schemas.audio import AudioFormat
from utterd_schemas.job import Job


class SaidFacts(TypedDict):
    """What `utterd say --json` prints."""

    path: str
    key: str
    voice: str
    content_type: str
    sample_rate_hz: int
    duration_s: float
    frames: int
    bytes: int
    sha256: str
    quality: list[str]


STANDARD_OUTPUT = Path("-")


def format_of(path: Path) -> AudioFormat | None:
    """The format that a file's name asks for; None when it asks for none."""
    extension = path.suffix.removeprefix(".").lower()
    return next(
        (kind for kind, traits in FORMATS.items() if extension in (traits.extension, kind)), None
    )


async def say_to(output: Path, job: Job, settings: Settings) -> SaidFacts:
    """Speak a job into a file, or onto standard output.

    Args:
        output: the file, or `STANDARD_OUTPUT`.
        job: what to say.
        settings: of the engine and of speech.

    Raises:
        JobError: the job is not valid, or the engine failed.
        ConfigurationError: the engine can't be loaded.
    """
    planner = make_planner(settings)
    plan = planner.plan(job)
    async with engine_host(make_engine_host(settings, planner)) as host:
        speech = await speak(
            plan, host, pace=Pace(urgent=True), timeout_s=settings.speech.job_timeout_s
        )
    finished: Finished = await asyncio.to_thread(finish, speech, plan)
    encoded = finished.encoded
    await asyncio.to_thread(_write, output, encoded.data)
    return SaidFacts(
        path=str(output),
        key=plan.key,
        voice=plan.full_voice,
        content_type=encoded.content_type,
        sample_rate_hz=encoded.sample_rate_hz,
        duration_s=encoded.duration_s,
        frames=encoded.frames,
        bytes=len(encoded.data),
        sha256=encoded.sha256,
        quality=list(speech.reasons),
    )


def _write(output: Path, data: bytes) -> None:
    if output == STANDARD_OUTPUT:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        output.write_bytes(data)
