"""`say` and `publish`: speech without and with a broker."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from utterd.app import open_store
from utterd.cli.exit_status import ExitStatus
from utterd.cli.job_input import (
    BitrateOption,
    FormatOption,
    JobFileOption,
    LabelsOption,
    LanguageOption,
    MarksOption,
    NormalizeOption,
    RateOption,
    SeedOption,
    SpeedOption,
    SsmlOption,
    StreamOption,
    TextArgument,
    VoiceOption,
    labels_of,
    make_job,
)
from utterd.cli.output import JsonOption, in_a_folder, print_json
from utterd.client import ReceivedEvent
from utterd.config import Lane, LogSettings, Settings
from utterd.errors import BrokerUnavailableError
from utterd.fetch import fetch_audio
from utterd.ops.logging import configure_logging
from utterd.persist import persist
from utterd.say import STANDARD_OUTPUT, format_of, say_to
from utterd.settings_sources import load_settings
from utterd_schemas.audio import AudioFormat
from utterd_schemas.events import EventType
from utterd_schemas.job import Job


def _no_terminal(output: Path) -> Path | None:
    if output != STANDARD_OUTPUT:
        return in_a_folder(output)
    if sys.stdout.isatty():
        raise typer.BadParameter("a terminal can't play audio: name a file, or use a pipe")
    return output


def say(  # noqa: PLR0913 - one parameter an option
    text: TextArgument = None,
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The audio file, or `-` for standard output, which must be no terminal then.",
            callback=_no_terminal,
        ),
    ],
    job_file: JobFileOption = None,
    ssml: SsmlOption = False,
    voice: VoiceOption = None,
    language: LanguageOption = None,
    speed: SpeedOption = None,
    audio_format: FormatOption = None,
    sample_rate: RateOption = None,
    bitrate: BitrateOption = None,
    normalize: NormalizeOption = None,
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Speak into a file, without a broker and without a bucket.

    With `-o -`, the audio goes to standard output and what is said of it to standard error.

    Example: utterd say "Hello there." -o hello.wav
    """
    settings = load_settings().settings
    configure_logging(LogSettings(level="error"))
    job = make_job(
        text,
        job_file,
        {
            "voice": voice,
            "language": language,
            "speed": speed,
            "format": audio_format or _format_of(output),
            "sample_rate_hz": sample_rate,
            "bitrate_kbps": bitrate,
            "normalize": normalize,
            "seed": seed,
        },
        is_ssml=ssml,
    )
    facts = asyncio.run(say_to(output, job, settings))
    is_piped = output == STANDARD_OUTPUT
    if as_json:
        print_json(facts, err=is_piped)
    else:
        line = f"{output}: {facts['duration_s']:.2f} s, {facts['content_type']}"
        typer.echo(line, err=is_piped)


def publish(  # noqa: PLR0913 - one parameter an option
    text: TextArgument = None,
    *,
    job_file: JobFileOption = None,
    ssml: SsmlOption = False,
    job_id: Annotated[str | None, typer.Option("--id", help="The job's id.")] = None,
    lane: Annotated[Lane, typer.Option("--lane", help="How urgent it is.")] = Lane.INTERACTIVE,
    voice: VoiceOption = None,
    language: LanguageOption = None,
    speed: SpeedOption = None,
    audio_format: FormatOption = None,
    sample_rate: RateOption = None,
    bitrate: BitrateOption = None,
    marks: MarksOption = None,
    normalize: NormalizeOption = None,
    seed: SeedOption = None,
    stream: StreamOption = None,
    expires_at: Annotated[
        str | None,
        typer.Option("--expires-at", help="When the audio is of no use any more, as RFC 3339."),
    ] = None,
    label: LabelsOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the terminal event and print it.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", help="Wait, and fetch the audio into this file.", callback=in_a_folder
        ),
    ] = None,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout", help="How many seconds to try, and with --wait to wait.", min=0.1
        ),
    ] = 120.0,
    as_json: JsonOption = False,
) -> None:
    """Publish a job; prints its id, or with --wait its terminal event as JSON.

    While the broker is away, it is tried again under the same id. A lane that is full is status
    75 at once, one that is not there 78.

    Example: utterd publish "Hello there." --format mp3 --save hello.mp3
    """
    settings = load_settings().settings
    configure_logging(LogSettings(level="error"))
    job = make_job(
        text,
        job_file,
        {
            "job_id": job_id,
            "voice": voice,
            "language": language,
            "speed": speed,
            "format": audio_format,
            "sample_rate_hz": sample_rate,
            "bitrate_kbps": bitrate,
            "marks": marks,
            "normalize": normalize,
            "seed": seed,
            "stream": stream,
            "expires_at": expires_at,
            "labels": labels_of(label),
        },
        is_ssml=ssml,
    )
    # One id for all attempts, so that a repetition is harmless.
    job = job if job.job_id else job.model_copy(update={"job_id": str(uuid4())})
    if wait or save:
        event = asyncio.run(_publish_and_wait(settings, job, lane, timeout_s, save))
        print_json(event)
        if event["type"] != EventType.COMPLETED:
            raise typer.Exit(ExitStatus.FAILED)
        return
    published_id = asyncio.run(_publish(settings, job, lane, timeout_s))
    if as_json:
        print_json({"job_id": published_id})
    else:
        typer.echo(published_id)


def _format_of(path: Path) -> AudioFormat | None:
    """What the file's name asks for; a name without an extension leaves it to the settings."""
    wanted = format_of(path)
    if wanted is None and path.suffix:
        raise typer.BadParameter(
            f"{path.suffix} is no format: use one of {', '.join(AudioFormat)}, or --format",
            param_hint="--output",
        )
    return wanted


async def _publish(settings: Settings, job: Job, lane: Lane, timeout_s: float) -> str:
    return await persist(
        settings.broker,
        "utterd publish",
        lambda client, _left_s: client.publish(job, lane),
        timeout_s=timeout_s,
        on_failure=_notice(timeout_s),
    )


async def _publish_and_wait(
    settings: Settings, job: Job, lane: Lane, timeout_s: float, save: Path | None
) -> ReceivedEvent:
    event = await persist(
        settings.broker,
        "utterd publish",
        lambda client, left_s: client.publish_and_wait(job, lane, timeout_s=left_s),
        timeout_s=timeout_s,
        on_failure=_notice(timeout_s),
    )
    if save is not None and event["type"] == EventType.COMPLETED:
        async with open_store(settings.store) as objects:
            await fetch_audio(event, save, objects)
    return event


def _notice(timeout_s: float) -> Callable[[BrokerUnavailableError], None]:
    """Tells a person once why it takes so long."""
    told: set[str] = set()

    def tell(error: BrokerUnavailableError) -> None:
        if error.message not in told:
            typer.echo(f"{error.message}. Trying for up to {timeout_s:g} s", err=True)
        told.add(error.message)

    return tell
