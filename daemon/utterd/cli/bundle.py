"""`bundle`: converts a released checkpoint to what the gateway runs, and verifies the result."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console

from utterd.cli.exit_status import ExitStatus
from utterd.cli.output import JsonOption, print_json
from utterd.engines.cosyvoice.bundle import open_bundle
from utterd.engines.cosyvoice.manifest import DEFAULT_LIMITS, Precision, Quality
from utterd.errors import ConfigurationError

app = typer.Typer(
    help="Bundles: the models of the engine cosyvoice, as the gateway runs them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_MEBIBYTE = 1024 * 1024


@app.command()
def convert(
    checkpoint: Annotated[
        Path, typer.Argument(help="The directory of CosyVoice-300M-SFT, as it was released.")
    ],
    *,
    out: Annotated[Path, typer.Option("--output", "-o", help="The bundle to make, a directory.")],
    precision: Annotated[
        Precision,
        typer.Option(
            help="int8 is faster and smaller, float32 is exact, int7 is int8 for x86-64 without"
            " VNNI."
        ),
    ] = Precision.INT8,
    vocoder: Annotated[
        Precision | None,
        typer.Option(
            help="Of the vocoder, if other than the bundle's: float32 where int8 is too coarse for"
            " it."
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Another threshold for refusing the bundle; NAME is logit_error, top1_agreement,"
            " mel_error or waveform_distance. May be repeated.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a checkpoint to a bundle. Needs the extra `convert`, not torch.

    An int8 or int7 bundle is compared with float32 and refused when it is too far from it; the
    status is then 78.

    Example: utterd bundle convert CosyVoice-300M-SFT -o /var/lib/utterd/cosyvoice
    """
    try:
        from utterd.engines.cosyvoice.conversion.convert import (  # noqa: PLC0415 - an extra
            convert as convert_checkpoint,
        )
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"conversion needs the package {error.name}: pip install 'utterd[convert]'"
        ) from error
    limits = _limits(limit or [])
    with _signals_clean_up(), _progress() as report:
        made = convert_checkpoint(
            checkpoint, out, precision=precision, vocoder=vocoder, report=report, limits=limits
        )
    manifest = made.bundle.manifest
    size_bytes = sum(facts.size_bytes for facts in manifest.files.values())
    if as_json:
        print_json(
            {
                "bundle": str(out),
                "digest": made.bundle.digest,
                "precision": precision,
                "size_bytes": size_bytes,
                "voices": manifest.voices,
                "quality": manifest.quality and manifest.quality.model_dump(),
                "duration_s": round(made.duration_s, 3),
                "peak_memory_bytes": made.peak_memory_bytes,
            }
        )
        return
    typer.echo(f"{out}: {precision}, {size_bytes // _MEBIBYTE} MiB, digest {made.bundle.digest}")
    typer.echo(f"voices: {', '.join(manifest.voices)}")
    if manifest.quality is not None:
        for name, value in manifest.quality.model_dump().items():
            typer.echo(f"{name}: {value:.4f} (limit {getattr(limits, name):g})")
    typer.echo(
        f"took {made.duration_s:.1f} s and at most {made.peak_memory_bytes // _MEBIBYTE} MiB of"
        " memory"
    )


@app.command()
def verify(
    bundle: Annotated[Path, typer.Argument(help="The directory of the bundle.")],
    *,
    reference: Annotated[
        Path | None,
        typer.Option(help="An .npz with inputs and outputs of the original modules."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a bundle's digests, load and run it, and compare it with a reference.

    Each line says ok or fault. The status is 1 when there is a fault.

    Example: utterd bundle verify /var/lib/utterd/cosyvoice --json
    """
    from utterd.engines.cosyvoice import verification  # noqa: PLC0415 - it loads onnxruntime

    passed = True
    for check in verification.verify(open_bundle(bundle), reference):
        passed &= check.passed
        if as_json:
            print_json(asdict(check))
        else:
            typer.echo(f"{'ok   ' if check.passed else 'fault'}  {check.name}: {check.message}")
    if not passed:
        raise typer.Exit(ExitStatus.FAILED)


def _limits(given: list[str]) -> Quality:
    """The default limits with those that the command line names."""
    changed = dict(item.partition("=")[::2] for item in given)
    try:
        return Quality.model_validate(DEFAULT_LIMITS.model_dump() | changed)
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(
            f"--limit {first['loc'][0]}: {first['msg']}; write for example mel_error=0.2"
        ) from error


@contextmanager
def _signals_clean_up() -> Iterator[None]:
    """SIGTERM and SIGHUP leave the block as Ctrl-C does, so that no half of a bundle stays.

    The status is the shell's for the signal.
    """

    def leave(number: int, _frame: object) -> None:
        # A second one would interrupt the cleaning.
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    # nohup's choice stands.
    signals = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    ]
    if threading.current_thread() is not threading.main_thread():
        signals = []
    for number in signals:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in signals:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Shows the step in hand on a terminal, and nothing elsewhere."""
    console = Console(stderr=True)
    if not sys.stderr.isatty():
        yield lambda _step: None
        return
    with console.status("reading the checkpoint") as status:
        yield lambda step: status.update(f"converting: {step}")
