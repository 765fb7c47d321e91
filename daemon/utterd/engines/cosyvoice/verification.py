"""`utterd bundle verify`: whether a bundle is whole, runs, and computes what a reference says."""

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

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

# A reference of the released checkpoint has about 30 MiB.
_MAX_REFERENCE_BYTES = 1024 * 1024 * 1024

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


class _Reference:
    """Arrays of a reference; each input is what the stage takes before it reaches the stage."""

    def __init__(self, path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._path = path
        self._arrays = arrays

    def numbered(self, pattern: str) -> Iterator[int]:
        """The numbers from 0 on that make a pattern the name of an array."""
        number = 0
        while pattern.format(number) in self._arrays:
            yield number
            number += 1

    def wanted(self, key: str) -> NDArray[Any]:
        """What a stage should give; it is looked at when it is compared."""
        return self._array(key)

    def ids(self, key: str, *, below: int, at_most: int, batch: bool = True) -> NDArray[np.int64]:
        """Token ids, shape (n,), from an array (1, n) or, without `batch`, (n,)."""
        array = self._array(key)
        leading = (1,) if batch else ()
        if array.dtype.kind not in "iu" or array.shape[:-1] != leading or array.ndim == 0:
            self._refuse(
                key,
                f"is {array.dtype} of shape {array.shape}, not token ids of shape"
                f" {(*leading, 'any')}".replace("'", ""),
            )
        ids = array.reshape(-1)
        if not 0 < ids.size <= at_most:
            self._refuse(key, f"has {ids.size} token ids, not 1 to {at_most}")
        if int(ids.min()) < 0 or int(ids.max()) >= below:
            self._refuse(key, f"has token ids outside of 0 to {below - 1}")
        return ids.astype(np.int64)

    def numbers(self, key: str, *shape: int | None) -> NDArray[np.float32]:
        """Finite float32; None in the shape fits any size but 0."""
        array = self._array(key)
        fits = len(array.shape) == len(shape) and all(
            size == wanted or (wanted is None and size > 0)
            for wanted, size in zip(shape, array.shape, strict=True)
        )
        if array.dtype.kind != "f" or not fits:
            expected = ", ".join("any" if size is None else str(size) for size in shape)
            self._refuse(
                key, f"is {array.dtype} of shape {array.shape}, not float of shape ({expected})"
            )
        with np.errstate(over="ignore"):
            numbers = array.astype(np.float32)
        if not np.isfinite(numbers).all():
            self._refuse(key, "holds NaN or infinity")
        return numbers

    def speaker(self, bundle: Bundle, key: str) -> NDArray[np.float32]:
        """The embedding of the voice that an array names."""
        array = self._array(key)
        if array.dtype.kind != "U" or array.shape or str(array) not in bundle.voices:
            self._refuse(key, f"names none of the bundle's voices {', '.join(bundle.voices)}")
        return bundle.voices[str(array)].speaker

    def _array(self, key: str) -> NDArray[Any]:
        if key not in self._arrays:
            raise ConfigurationError(
                f"the reference has no array {key}: name the reference of this checkpoint"
            )
        return self._arrays[key]

    def _refuse(self, key: str, reason: str) -> NoReturn:
        raise ConfigurationError(
            f"{self._path}: {key} {reason}: name the reference of this checkpoint"
        )


def _read_reference(path: Path) -> _Reference:
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is no file")
        with zipfile.ZipFile(path) as archive:
            size_bytes = sum(info.file_size for info in archive.infolist())
        if size_bytes > _MAX_REFERENCE_BYTES:
            raise ValueError(f"it would take {size_bytes} bytes of memory")
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
    except (
        *(OSError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError, OverflowError),
        *(ValueError, TypeError, LookupError, AttributeError, RuntimeError, SyntaxError),
        *(struct.error, tokenize.TokenError, lzma.LZMAError),
    ) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(
            f"{path} is no .npz of plain arrays ({' '.join(ascii(reason)[1:-1].split())}): name"
            " the reference of this checkpoint"
        ) from error
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ConfigurationError(
            f"{path} holds something else than arrays: name the reference of this checkpoint"
        )
    return _Reference(path, arrays)


def _compare(stages: Stages, reference: _Reference) -> Iterator[Check]:
    is_exact = stages.bundle.manifest.precision is Precision.FLOAT32
    parts: dict[str, Callable[[Stages, _Reference], Pairs]] = {
        "text encoding": _text_encodings,
        "logits": _logits,
        "mel": _mels,
        "f0": _f0,
        "source": _source,
        "waveform": _waveform,
    }
    for name, part in parts.items():
        # What overflows differs by more than is allowed.
        with np.errstate(over="ignore", invalid="ignore"):
            pairs = list(part(stages, reference))
        if not pairs:
            raise ConfigurationError(
                f"the reference has nothing to compare {name} with: name the reference of this"
                " checkpoint"
            )
        unfit = next((reason for pair in pairs if (reason := _unfit(*pair))), None)
        if unfit is not None:
            yield Check(
                name=name,
                passed=False,
                message=f"the reference {unfit}: it is of another checkpoint, or damaged",
            )
            continue
        tolerance = _FLOAT32_TOLERANCES[name]
        if not is_exact and name not in _ALWAYS_FLOAT32:
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


def _unfit(found: NDArray[Any], wanted: NDArray[Any]) -> str | None:
    """Why what is wanted can be compared with nothing, or None."""
    if wanted.dtype.kind != "f":
        return f"is of {wanted.dtype} and no floating-point numbers"
    if found.shape != wanted.shape:
        return f"has the shape {wanted.shape}, and the bundle gives {found.shape}"
    if not np.isfinite(wanted).all():
        return "holds NaN or infinity"
    if np.abs(wanted).max(initial=0.0) > np.finfo(np.float32).max:
        return "holds numbers beyond float32"
    return None


def _difference(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    with np.errstate(all="ignore"):
        difference = float(np.abs(found - wanted).max(initial=0.0))
    return difference if np.isfinite(difference) else float("inf")


def _text_ids(stages: Stages, reference: _Reference, number: int) -> NDArray[np.int64]:
    manifest = stages.bundle.manifest
    return reference.ids(
        f"lm{number}_text_ids",
        below=manifest.text_vocabulary,
        at_most=manifest.text_encoder.positions,
    )


def _text_encodings(stages: Stages, reference: _Reference) -> Pairs:
    for number in reference.numbered("lm{}_text_ids"):
        found = stages.text_encoder.encoding(_text_ids(stages, reference, number))
        yield found[None], reference.wanted(f"lm{number}_text_encoding")


def _logits(stages: Stages, reference: _Reference) -> Pairs:
    model, dims = stages.language_model, stages.bundle.manifest.language_model
    for number in reference.numbered("lm{}_text_ids"):
        rows = stages.text_encoder.encode(_text_ids(stages, reference, number))
        speaker = reference.speaker(stages.bundle, f"lm{number}_speaker")
        prompt = model.prompt(rows, speaker)
        forced = reference.ids(
            f"lm{number}_forced_tokens",
            below=dims.speech_tokens,
            at_most=dims.positions - len(prompt),
            batch=False,
        )
        cache = model.new_cache(rows=1, capacity=len(prompt) + len(forced))
        logits = [model.join(cache, 0, prompt)]
        logits.extend(model.step(cache, [0], forced[[step]])[0] for step in range(len(forced) - 1))
        yield np.stack(logits), reference.wanted(f"lm{number}_logits")


def _mels(stages: Stages, reference: _Reference) -> Pairs:
    dims = stages.bundle.manifest.flow
    for number in reference.numbered("flow{}_tokens"):
        tokens = reference.ids(
            f"flow{number}_tokens",
            below=stages.bundle.manifest.language_model.speech_tokens,
            at_most=dims.encoder.positions,
        )
        frames = stages.flow.mel_length(len(tokens))
        mel = stages.flow.mel(
            tokens,
            reference.speaker(stages.bundle, f"flow{number}_speaker"),
            reference.numbers(f"flow{number}_noise", 1, frames, dims.mel_bins)[0],
        )
        yield mel[None], reference.wanted(f"flow{number}_mel")


def _hift_mel(stages: Stages, reference: _Reference) -> NDArray[np.float32]:
    bins = stages.bundle.manifest.flow.mel_bins
    return np.transpose(reference.numbers("hift_mel", 1, bins, None)[0])


def _f0(stages: Stages, reference: _Reference) -> Pairs:
    yield stages.vocoder.f0(_hift_mel(stages, reference))[None], reference.wanted("hift_f0")


def _source(stages: Stages, reference: _Reference) -> Pairs:
    dims = stages.bundle.manifest.vocoder
    f0 = reference.numbers("hift_f0", 1, None)[0]
    samples = len(f0) * dims.samples_per_frame
    source = stages.vocoder.source(
        f0,
        reference.numbers("hift_phase", dims.harmonics, 1)[:, 0],
        reference.numbers("hift_noise", dims.harmonics, samples),
    )
    yield source[None, None], reference.wanted("hift_source")


def _waveform(stages: Stages, reference: _Reference) -> Pairs:
    mel = _hift_mel(stages, reference)
    samples = len(mel) * stages.bundle.manifest.vocoder.samples_per_frame
    source = reference.numbers("hift_source", 1, 1, samples)[0, 0]
    yield stages.vocoder.waveform(mel, source)[None], reference.wanted("hift_wav")
