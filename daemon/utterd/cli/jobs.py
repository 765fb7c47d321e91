"""`say` and `publish`: speech without and with a broker."""

import asyncio
from pathlib import Path
from typing import Annotated

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
    TextArgument,
    VoiceOption,
    labels_of,
    make_job,
)
from utterd.cli.output import JsonOption, in_a_folder, print_json
from utterd.client import ReceivedEvent, open_client
from utterd.config import Lane, LogSettings, Settings
from utterd.fetch import fetch_audio
from utterd.ops.logging import configure_logging
from utterd.say import format_of, say_to_file
from utterd.settings_sources import load_settings
from utterd_schemas.audio import AudioFormat
from utterd_schemas.events import EventType
from utterd_schemas.job import Job


def say(  # noqa: PLR0913 - one parameter an option
    text: TextArgument = None,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The audio file.", callback=in_a_folder)
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
    facts = asyncio.run(say_to_file(job, output, settings))
    if as_json:
        print_json(facts)
    else:
        typer.echo(f"{output}: {facts['duration_s']:.2f} s, {facts['content_type']}")


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
        float, typer.Option("--timeout", help="How many seconds to wait.", min=0.1)
    ] = 120.0,
    as_json: JsonOption = False,
) -> None:
    """Publish a job; prints its id, or with --wait its terminal event as JSON.

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
            "expires_at": expires_at,
            "labels": labels_of(label),
        },
        is_ssml=ssml,
    )
    if wait or save:
        event = asyncio.run(_publish_and_wait(settings, job, lane, timeout_s, save))
        print_json(event)
        if event["type"] != EventType.COMPLETED:
            raise typer.Exit(ExitStatus.FAILED)
        return
    published_id = asyncio.run(_publish(settings, job, lane))
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


async def _publish(settings: Settings, job: Job, lane: Lane) -> str:
    async with open_client(settings.broker, "utterd publish") as client:
        return await client.publish(job, lane)


async def _publish_and_wait(
    settings: Settings, job: Job, lane: Lane, timeout_s: float, save: Path | None
) -> ReceivedEvent:
    async with open_client(settings.broker, "utterd publish") as client:
        event = await client.publish_and_wait(job, lane, timeout_s=timeout_s)
    if save is not None and event["type"] == EventType.COMPLETED:
        async with open_store(settings.store) as objects:
            await fetch_audio(event, save, objects)
    return event
