"""From command-line options to a job."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from utterd.errors import InvalidEncodingError, InvalidJsonError
from utterd.jobs.validate import validate_job
from utterd_schemas.audio import AudioFormat, MarkKind
from utterd_schemas.job import Job

TextArgument = Annotated[
    str | None, typer.Argument(help="What to say; without it, or as `-`, standard input is read.")
]
JobFileOption = Annotated[
    Path | None,
    typer.Option("--job", "-j", help="A JSON file with the job, or `-` for standard input."),
]
VoiceOption = Annotated[str | None, typer.Option("--voice", "-v", help="As `engine/voice`.")]
LanguageOption = Annotated[str | None, typer.Option("--language", "-l", help="Such as `en`.")]
SpeedOption = Annotated[float | None, typer.Option("--speed", "-s", help="From 0.5 to 2.0.")]
FormatOption = Annotated[AudioFormat | None, typer.Option("--format", "-f", help="Of the audio.")]
RateOption = Annotated[
    int | None, typer.Option("--sample-rate", help="In Hz; default: the engine's own.")
]
BitrateOption = Annotated[int | None, typer.Option("--bitrate", help="In kbit/s, mp3 and opus.")]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Of the synthesis.")]
SsmlOption = Annotated[bool, typer.Option("--ssml", help="The text is SSML.")]
NormalizeOption = Annotated[
    bool | None,
    typer.Option("--normalize/--no-normalize", help="Write numbers and dates out; default: yes."),
]
MarksOption = Annotated[
    list[MarkKind] | None, typer.Option("--marks", help="Timing marks to store with the audio.")
]
StreamOption = Annotated[
    bool | None,
    typer.Option(
        "--stream", help="Store and announce each segment early; `utterd watch` shows them."
    ),
]
LabelsOption = Annotated[
    list[str] | None, typer.Option("--label", help="A note as NAME=VALUE; may be repeated.")
]


def make_job(
    text: str | None,
    job_file: Path | None,
    options: Mapping[str, object],
    *,
    is_ssml: bool = False,
) -> Job:
    """A job from a file, with the options given on the command line on top.

    Args:
        text: what to say; None or `-` reads standard input when there is no file either.
        job_file: JSON; `-` is standard input.
        options: fields by name; None means not given.
        is_ssml: whether the text is SSML.

    Raises:
        InvalidEncodingError: standard input is not UTF-8.
        InvalidJsonError: the file is not a JSON object.
        InvalidFieldError: the job is not valid.
        UnknownFieldError: the job has a field that no job has.
    """
    given = {name: value for name, value in options.items() if value not in (None, [], {})}
    if job_file is not None:
        if text is not None:
            raise typer.BadParameter("give the text or a job file, not both", param_hint="--job")
        return validate_job({**_read_job(job_file), **given})
    if text is None or text == "-":
        text = _read_standard_input()
    return validate_job({"ssml" if is_ssml else "text": text, **given})


def labels_of(pairs: list[str] | None) -> dict[str, str]:
    """Labels from `NAME=VALUE` words."""
    labels = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"{pair!r} has no `=`", param_hint="--label")
        labels[name] = value
    return labels


def _read_standard_input() -> str:
    if sys.stdin.isatty():
        typer.echo("reading standard input; Ctrl-D ends it", err=True)
    # Whatever the locale: text and jobs are UTF-8.
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidEncodingError("standard input is not UTF-8: convert it first") from None


def _read_job(path: Path) -> dict[str, object]:
    try:
        body = _read_standard_input() if str(path) == "-" else path.read_text(encoding="utf-8")
        fields = json.loads(body)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidJsonError(f"{path} can't be read as JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidJsonError(f"{path} must hold one JSON object")
    return fields
