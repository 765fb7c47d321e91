"""`utterd bundle convert`: an official directory becomes a bundle."""

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from hashlib import file_digest
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from utterd.engines.cosyvoice.bundle import (
    TOKENIZER_NAME,
    Bundle,
    open_bundle,
    require_utf8_path,
    write_manifest,
)
from utterd.engines.cosyvoice.conversion.calibration import Recording, judge, observe, record
from utterd.engines.cosyvoice.conversion.checkpoint import (
    hift_shape,
    write_flow,
    write_hift,
    write_llm,
    write_voices,
)
from utterd.engines.cosyvoice.conversion.faults import read_fault
from utterd.engines.cosyvoice.conversion.scratch import scratch_directory
from utterd.engines.cosyvoice.conversion.settings import CheckpointSettings, read_settings
from utterd.engines.cosyvoice.conversion.static_quantization import LayerRange, merge_ranges
from utterd.engines.cosyvoice.conversion.vocoder import HiftWriter
from utterd.engines.cosyvoice.conversion.weights import Array, open_weights
from utterd.engines.cosyvoice.manifest import (
    DEFAULT_LIMITS,
    FORMAT_VERSION,
    FileFacts,
    Manifest,
    Precision,
    Quality,
)
from utterd.engines.cosyvoice.model.session import open_session
from utterd.errors import ConfigurationError

CHECKPOINT_FILES = ("cosyvoice.yaml", "llm.pt", "flow.pt", "hift.pt", "spk2info.pt")
_ASSETS = (TOKENIZER_NAME, f"{TOKENIZER_NAME}.LICENSE", "NOTICE", "LICENSE")

AT_LEAST = frozenset({"top1_agreement"})
"""The measures of which more is better."""


class PoorQualityError(ConfigurationError):
    """An int8 or int7 bundle is too far from the same checkpoint in float32."""

    def __init__(self, message: str, quality: Quality) -> None:
        super().__init__(message)
        self.quality = quality


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What a conversion made and took.

    Attributes:
        bundle: the result.
        duration_s: wall time.
        peak_memory_bytes: the most that the process has held at any time.
    """

    bundle: Bundle
    duration_s: float
    peak_memory_bytes: int


def convert(
    checkpoint: Path,
    out: Path,
    *,
    precision: Precision,
    vocoder: Precision | None = None,
    report: Callable[[str], None],
    limits: Quality = DEFAULT_LIMITS,
) -> Conversion:
    """Convert the directory of a checkpoint. `out` appears when all of it has been written.

    Args:
        checkpoint: a directory with `CHECKPOINT_FILES`.
        out: the directory to make; it must not exist.
        precision: of the large matrix products.
        vocoder: of the vocoder's convolutions; None is the bundle's own.
        report: called with a few words at the start of each step.
        limits: how far a bundle that is not float32 may be from it.

    Raises:
        ConfigurationError: a file is missing, damaged or of another model, or `out` exists or
            can't be written.
        PoorQualityError: the bundle is further from float32 than the limits allow.
    """
    started_s = time.monotonic()
    if precision is Precision.FLOAT32 and vocoder not in {None, precision}:
        raise ConfigurationError(
            f"a float32 bundle has a float32 vocoder, not {vocoder}: leave that out, or choose"
            " another precision for the bundle"
        )
    try:
        missing = [name for name in CHECKPOINT_FILES if not (checkpoint / name).is_file()]
    except OSError as error:
        raise read_fault(checkpoint, error) from error
    if missing:
        raise ConfigurationError(
            f"{checkpoint} lacks {', '.join(missing)}: name the directory of CosyVoice-300M-SFT as"
            " it was released"
        )
    require_utf8_path(out)
    # A link that leads nowhere is in the way as well.
    if os.path.lexists(out):
        raise ConfigurationError(f"{out} exists: name a new directory, or remove it first")
    source = _Source(checkpoint, read_settings(checkpoint / "cosyvoice.yaml"), report)
    # What overflows is refused with its stage, so numpy needn't warn.
    with scratch_directory(out) as scratch, np.errstate(over="ignore", invalid="ignore"):
        bundle = _write(source, _Arithmetic(), scratch / Precision.FLOAT32)
        if precision is Precision.FLOAT32:
            source.report("a sentence")
            record(bundle, sentences=1)
        else:
            arithmetic = _Arithmetic(precision, vocoder or precision)
            bundle = _quantize(source, bundle, arithmetic, scratch, limits)
        bundle.directory.rename(out)
    return Conversion(
        bundle=open_bundle(out),
        duration_s=time.monotonic() - started_s,
        peak_memory_bytes=_peak_memory_bytes(),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    checkpoint: Path
    settings: CheckpointSettings
    report: Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Arithmetic:
    """What a bundle computes in, and what it must know of the float32 bundle's insides for it."""

    precision: Precision = Precision.FLOAT32
    vocoder: Precision = Precision.FLOAT32
    cache_peaks: Array | None = None
    vocoder_ranges: Mapping[str, LayerRange] | None = None


def _quantize(
    source: _Source, exact: Bundle, arithmetic: _Arithmetic, scratch: Path, limits: Quality
) -> Bundle:
    """A bundle of integers, calibrated on the float32 one, compared with it, and judged."""
    source.report("a few sentences in float32")
    recordings, cache_peaks = record(exact)
    ranges = None
    if arithmetic.vocoder is not Precision.FLOAT32:
        source.report("ranges of the vocoder")
        ranges = _measure_ranges(source, exact, recordings, scratch / "observer.onnx")
    shutil.rmtree(exact.directory)
    precision = arithmetic.precision
    calibrated = replace(arithmetic, cache_peaks=cache_peaks, vocoder_ranges=ranges)
    bundle = _write(source, calibrated, scratch / precision)
    source.report(f"the same sentences in {precision}")
    quality = judge(bundle, recordings)
    poor = [
        name
        for name, limit in limits.model_dump().items()
        if (getattr(quality, name) < limit if name in AT_LEAST else getattr(quality, name) > limit)
    ]
    if poor:
        found = ", ".join(
            f"{name} is {getattr(quality, name):.3g} and should be at"
            f" {'least' if name in AT_LEAST else 'most'} {getattr(limits, name):.3g}"
            for name in poor
        )
        raise PoorQualityError(
            f"{precision} is too far from float32: {found}. Convert with --precision float32, or"
            " if only the waveform is with --vocoder float32, or accept it"
            f" with {' '.join(f'--limit {name}={_limit_for(quality, name)}' for name in poor)}",
            quality,
        )
    judged = bundle.manifest.model_copy(update={"quality": quality})
    return write_manifest(bundle.directory, judged)


def _limit_for(quality: Quality, name: str) -> Decimal:
    """The nearest limit of three digits that the quality keeps."""
    rounding = ROUND_FLOOR if name in AT_LEAST else ROUND_CEILING
    return Context(prec=3, rounding=rounding).create_decimal_from_float(getattr(quality, name))


def _measure_ranges(
    source: _Source, exact: Bundle, recordings: list[Recording], observer: Path
) -> dict[str, LayerRange]:
    with open_weights(source.checkpoint / "hift.pt", partly=True) as weights:
        names = HiftWriter(weights, hift_shape(source.settings)).write_observer(observer)
    merged = merge_ranges(observe(open_session(observer), exact, recordings))
    observer.unlink()
    return dict(zip(names, merged, strict=True))


def _write(source: _Source, arithmetic: _Arithmetic, out: Path) -> Bundle:
    """A bundle that is not yet judged."""
    out.mkdir()
    precision = arithmetic.precision
    checkpoint, settings = source.checkpoint, source.settings
    source.report(f"language model in {precision}")
    llm = write_llm(checkpoint, settings, precision, arithmetic.cache_peaks, out)
    source.report(f"flow in {precision}")
    flow = write_flow(checkpoint, settings, precision, out)
    source.report(f"vocoder in {arithmetic.vocoder}")
    vocoder = write_hift(checkpoint, settings, arithmetic.vocoder, arithmetic.vocoder_ranges, out)
    voices = write_voices(checkpoint, llm.speaker_width, out)
    for name in _ASSETS:
        with as_file(files("utterd.engines.cosyvoice").joinpath("assets", name)) as path:
            shutil.copyfile(path, out / name)
    source.report("digests")
    return write_manifest(
        out,
        Manifest(
            format_version=FORMAT_VERSION,
            model="CosyVoice-300M-SFT",
            precision=precision,
            speaker_width=llm.speaker_width,
            voices=voices,
            text_vocabulary=llm.text_vocabulary,
            text_encoder=llm.text_encoder,
            language_model=llm.language_model,
            flow=flow,
            vocoder=vocoder,
            quality=None,
            files=_facts(out),
        ),
    )


def _facts(directory: Path) -> dict[str, FileFacts]:
    facts = {}
    for path in sorted(directory.iterdir()):
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        facts[path.name] = FileFacts(sha256=digest, size_bytes=path.stat().st_size)
    return facts


def _peak_memory_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak if sys.platform == "darwin" else peak * 1024
