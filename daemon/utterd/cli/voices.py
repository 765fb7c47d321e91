"""`voices`, `plan` and `key`: what would be spoken, without speaking."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from utterd.app import make_planner
from utterd.cli.job_input import (
    BitrateOption,
    FormatOption,
    JobFileOption,
    LanguageOption,
    MarksOption,
    NormalizeOption,
    RateOption,
    SeedOption,
    SpeedOption,
    SsmlOption,
    TextArgument,
    VoiceOption,
    make_job,
)
from utterd.cli.output import JsonOption, print_json, print_table
from utterd.engines.protocol import EngineInfo, Voice
from utterd.settings_sources import load_settings


def voices(*, as_json: JsonOption = False) -> None:
    """List the voices of the configured engine, and their aliases.

    Example: utterd voices
    """
    planner = make_planner(load_settings().settings)
    info = planner.info
    aliases = {
        voice.name: [alias for alias, name in planner.aliases.items() if name == _full(info, voice)]
        for voice in info.voices
    }
    if as_json:
        print_json(
            [
                {
                    "voice": _full(info, voice),
                    "languages": list(voice.languages),
                    "description": voice.description,
                    "aliases": aliases[voice.name],
                    "sample_rate_hz": info.sample_rate_hz,
                    "bundle": info.bundle,
                }
                for voice in info.voices
            ]
        )
        return
    print_table(
        ("voice", "languages", "aliases", "description"),
        (
            (
                _full(info, voice),
                ", ".join(voice.languages),
                ", ".join(aliases[voice.name]),
                voice.description,
            )
            for voice in info.voices
        ),
    )


def _full(info: EngineInfo, voice: Voice) -> str:
    return f"{info.name}/{voice.name}"


def plan(  # noqa: PLR0913 - one parameter an option
    text: TextArgument = None,
    *,
    job_file: JobFileOption = None,
    ssml: SsmlOption = False,
    voice: VoiceOption = None,
    language: LanguageOption = None,
    speed: SpeedOption = None,
    audio_format: FormatOption = None,
    sample_rate: RateOption = None,
    bitrate: BitrateOption = None,
    marks: MarksOption = None,
    normalize: NormalizeOption = None,
    seed: SeedOption = None,
) -> None:
    """Print as JSON what would be spoken: segments, voice, output, key. Nothing is synthesised.

    Example: utterd plan "5 km/h on 3/4/2024"
    """
    job = make_job(
        text,
        job_file,
        {
            "voice": voice,
            "language": language,
            "speed": speed,
            "format": audio_format,
            "sample_rate_hz": sample_rate,
            "bitrate_kbps": bitrate,
            "marks": marks,
            "normalize": normalize,
            "seed": seed,
        },
        is_ssml=ssml,
    )
    planned = make_planner(load_settings().settings).plan(job)
    print_json(
        {
            "key": planned.key,
            "object_name": planned.object_name,
            "marks_name": planned.marks_name,
            "voice": planned.full_voice,
            "language": planned.language,
            "speed": planned.speed,
            "seed": planned.seed,
            "bundle": planned.bundle,
            "output": {**asdict(planned.output), "content_type": planned.output.content_type},
            "segments": [asdict(segment) for segment in planned.segments],
        }
    )


def key(
    job_file: Annotated[
        Path, typer.Argument(help="A JSON file with the job, or `-` for standard input.")
    ],
    *,
    as_json: JsonOption = False,
) -> None:
    """Print the key of a job: the hash that names its audio.

    Example: utterd key job.json
    """
    planned = make_planner(load_settings().settings).plan(make_job(None, job_file, {}))
    if as_json:
        print_json({"key": planned.key, "object_name": planned.object_name})
    else:
        typer.echo(planned.key)
