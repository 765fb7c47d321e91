"""`utterd bundle verify`: whether a bundle is whole, runs, and computes what a reference says."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utterd.engines.cosyvoice.bundle import Bundle, verify_files
from utterd.engines.cosyvoice.manifest import Precision
from utterd.engines.cosyvoice.model.flow import Flow
from utterd.engines.cosyvoice.model.language_model import SpeechLM
from utterd.engines.cosyvoice.model.text_encoder import TextEncoder
from utterd.engines.cosyvoice.model.vocoder import Vocoder
from utterd.errors import ConfigurationError

# Largest absolute differences of a float32 bundle.
_FLOAT32_TOLERANCES = {
    "text encoding": 1e-4,
    "logits": 1e-4,
    "mel": 1e-3,
    "f0": 1e-2,
    "source": 2e-4,
    "waveform": 1e-4,
}
# An int8 bundle differs by a share of the largest value; f0 and source are float32 in it.
_INT8_SHARE = 0.1
_ALWAYS_FLOAT32 = frozenset({"f0", "source"})

Reference = Mapping[str, NDArray[Any]]
Pairs = Iterator[tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: of the check.
        passed: whether it is as it should be.
        message: what was found, and what to do if it is not.
        difference: from the reference, where one was compared.
        tolerance: the largest difference that passes.
    """

    name: str
    passed: bool
    message: str
    difference: float | None = None
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class Stages:
    """All stages of a loaded bundle."""

    bundle: Bundle
    text_encoder: TextEncoder
    language_model: SpeechLM
    flow: Flow
    vocoder: Vocoder


def load_stages(bundle: Bundle) -> Stages:
    """Load every graph.

    Raises:
        ConfigurationError: a file is missing or can't be loaded.
    """
    return Stages(bundle, TextEncoder(bundle), SpeechLM(bundle), Flow(bundle), Vocoder(bundle))


def verify(bundle: Bundle, reference: Path | None = None) -> Iterator[Check]:
    """Look at a bundle, one check after the other; ends early where the next can't be made.

    Args:
        bundle: to look at.
        reference: an `.npz` with inputs and outputs of the original modules.

    Raises:
        ConfigurationError: the reference can't be read, or lacks an array.
    """
    faults = [
        Check(name=f"file {name}", passed=False, message=fault)
        for name, fault in verify_files(bundle)
        if fault is not None
    ]
    yield from faults
    if faults:
        return
    yield Check(
        name="files", passed=True, message=f"{len(bundle.manifest.files)} files have their digests"
    )
    try:
        stages = load_stages(bundle)
    except ConfigurationError as error:
        yield Check(name="graphs", passed=False, message=str(error))
        return
    yield Check(name="graphs", passed=True, message="all graphs load")
    yield _shapes(stages)
    if reference is not None:
        yield from _compare(stages, _read_reference(reference))


def _shapes(stages: Stages) -> Check:
    """Speak a few tokens with zeros for noise, and look at what each stage gives."""
    manifest = stages.bundle.manifest
    speaker = next(iter(stages.bundle.voices.values())).speaker
    rows = stages.text_encoder.encode(np.arange(3, dtype=np.int64))
    model = stages.language_model
    cache = model.new_cache(rows=2, capacity=16)
    logits = model.join(cache, 0, model.prompt(rows, speaker))
    stepped = model.step(cache, [0], np.zeros(1, np.int64))
    tokens = np.arange(8, dtype=np.int64) % manifest.language_model.speech_tokens
    frames = stages.flow.mel_length(len(tokens))
    mel = stages.flow.mel(
        tokens, speaker, np.zeros((frames, manifest.flow.mel_bins), np.float32), steps=1
    )
    samples = stages.vocoder.synthesize(mel, np.random.default_rng(0))
    token_count = manifest.language_model.speech_tokens + 1
    found = {
        "text encoding": (rows, (3, manifest.language_model.width)),
        "logits after the prompt": (logits, (token_count,)),
        "logits after a step": (stepped, (1, token_count)),
        "mel": (mel, (frames, manifest.flow.mel_bins)),
        "waveform": (samples, (frames * manifest.vocoder.samples_per_frame,)),
    }
    for name, (array, shape) in found.items():
        if array.shape != shape or not np.isfinite(array).all():
            return Check(
                name="shapes",
                passed=False,
                message=f"{name} is {array.shape} and should be {shape} of finite numbers:"
                " convert the checkpoint again",
            )
    return Check(name="shapes", passed=True, message="all stages give what the manifest says")


def _read_reference(path: Path) -> Reference:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except (OSError, ValueError, EOFError) as error:
        raise ConfigurationError(
            f"{path} is no .npz of plain arrays ({error}): name the reference of this checkpoint"
        ) from error


def _compare(stages: Stages, reference: Reference) -> Iterator[Check]:
    int8 = stages.bundle.manifest.precision is Precision.INT8
    parts: dict[str, Callable[[Stages, Reference], Pairs]] = {
        "text encoding": _text_encodings,
        "logits": _logits,
        "mel": _mels,
        "f0": _f0,
        "source": _source,
        "waveform": _waveform,
    }
    for name, part in parts.items():
        try:
            pairs = list(part(stages, reference))
        except KeyError as error:
            raise ConfigurationError(
                f"the reference has no array or voice {error.args[0]}: name the reference of this"
                " checkpoint"
            ) from error
        if not pairs:
            raise ConfigurationError(
                f"the reference has nothing to compare {name} with: name the reference of this"
                " checkpoint"
            )
        tolerance = _FLOAT32_TOLERANCES[name]
        if int8 and name not in _ALWAYS_FLOAT32:
            tolerance = _INT8_SHARE * max(float(np.abs(wanted).max()) for _, wanted in pairs)
        difference = max(_difference(found, wanted) for found, wanted in pairs)
        passed = difference <= tolerance
        yield Check(
            name=name,
            passed=passed,
            message=f"differs by at most {difference:.2e}, {tolerance:.0e} is allowed"
            + ("" if passed else ": the reference is of another checkpoint, or this is a defect"),
            difference=difference,
            tolerance=tolerance,
        )


def _difference(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    if found.shape != wanted.shape:
        return float("inf")
    difference = float(np.abs(found - wanted).max(initial=0.0))
    return difference if np.isfinite(difference) else float("inf")


def _numbered(reference: Reference, pattern: str) -> Iterator[int]:
    number = 0
    while pattern.format(number) in reference:
        yield number
        number += 1


def _speaker(stages: Stages, reference: Reference, key: str) -> NDArray[np.float32]:
    return stages.bundle.voices[str(reference[key])].speaker


def _text_encodings(stages: Stages, reference: Reference) -> Pairs:
    for number in _numbered(reference, "lm{}_text_ids"):
        ids = reference[f"lm{number}_text_ids"][0]
        yield stages.text_encoder.encoding(ids), reference[f"lm{number}_text_encoding"][0]


def _logits(stages: Stages, reference: Reference) -> Pairs:
    model = stages.language_model
    for number in _numbered(reference, "lm{}_text_ids"):
        rows = stages.text_encoder.encode(reference[f"lm{number}_text_ids"][0])
        prompt = model.prompt(rows, _speaker(stages, reference, f"lm{number}_speaker"))
        forced = reference[f"lm{number}_forced_tokens"]
        cache = model.new_cache(rows=1, capacity=len(prompt) + len(forced))
        logits = [model.join(cache, 0, prompt)]
        logits.extend(model.step(cache, [0], forced[[step]])[0] for step in range(len(forced) - 1))
        yield np.stack(logits), reference[f"lm{number}_logits"]


def _mels(stages: Stages, reference: Reference) -> Pairs:
    for number in _numbered(reference, "flow{}_tokens"):
        mel = stages.flow.mel(
            reference[f"flow{number}_tokens"][0],
            _speaker(stages, reference, f"flow{number}_speaker"),
            reference[f"flow{number}_noise"][0],
        )
        yield mel, reference[f"flow{number}_mel"][0]


def _f0(stages: Stages, reference: Reference) -> Pairs:
    yield stages.vocoder.f0(reference["hift_mel"][0].T), reference["hift_f0"][0]


def _source(stages: Stages, reference: Reference) -> Pairs:
    source = stages.vocoder.source(
        reference["hift_f0"][0], reference["hift_phase"][:, 0], reference["hift_noise"]
    )
    yield source, reference["hift_source"][0, 0]


def _waveform(stages: Stages, reference: Reference) -> Pairs:
    waveform = stages.vocoder.waveform(reference["hift_mel"][0].T, reference["hift_source"][0, 0])
    yield waveform, reference["hift_wav"][0]
