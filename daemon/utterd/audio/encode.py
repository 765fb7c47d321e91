"""Turn samples into the bytes of one stored object, and say truly what they decode to."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import soundfile

from utterd.audio.formats import MPEG1_MIN_RATE_HZ, MPEG2_MIN_RATE_HZ, OutputSpec
from utterd.audio.pcm import Pcm, check_pcm, limit_peak, to_int16
from utterd.audio.resample import resample
from utterd.errors import InvalidAudioError
from utterd_schemas.audio import AudioFormat

LOSSY_CEILING: Final = 10 ** (-1 / 20)
"""Decoders may overshoot the encoded peak; EBU R 128 leaves them 1 dB, so that nothing wraps."""

# libsndfile's range of Opus bitrates, which compression_level runs through from 0.0 to 1.0.
_OPUS_LOWEST_KBPS: Final = 6
_OPUS_HIGHEST_KBPS: Final = 256
# The info tag, by which decoders know the encoder's padding, has to fit into one MP3 frame;
# LAME leaves it out of a constant-bitrate file with smaller frames.
_INFO_TAG_BYTES: Final = 177
# soundfile refuses a level that is exactly 1.0 for MP3.
_MAX_LEVEL: Final = 0.9999

_BITRATE_TOLERANCE: Final = 0.03
_MAX_PASSES: Final = 4
# In shorter audio the container's headers outweigh what a correction could win.
_MIN_MEASURABLE_S: Final = 5.0

BitrateMode = Literal["CONSTANT", "AVERAGE"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One object's bytes and the facts about them.

    Attributes:
        data: the whole file; headerless for pcm, ulaw and alaw.
        content_type: MIME type; it carries the sample rate where the bytes don't.
        extension: of the object's name, without the dot.
        sample_rate_hz: of the decoded audio.
        frames: samples that the file decodes to.
        duration_s: of the decoded audio.
        sha256: of `data`, in hex. Ogg streams have a random serial number, so that the same
            audio encoded twice has two of them.
    """

    data: bytes
    content_type: str
    extension: str
    sample_rate_hz: int
    frames: int
    duration_s: float
    sha256: str


def encode(pcm: Pcm, source_rate_hz: int, spec: OutputSpec) -> Encoded:
    """Resample to the output's rate and encode.

    Lossy codecs are given a peak of at most `LOSSY_CEILING`, the others one of full scale.

    Args:
        pcm: float32 mono samples, shape (n,).
        source_rate_hz: their rate.
        spec: a legal output, from `resolve_output`.

    Raises:
        InvalidAudioError: the samples aren't finite float32 mono, or there are none.
    """
    ceiling = LOSSY_CEILING if spec.traits.lossy else 1.0
    # Limited before the filter as well, whose arithmetic must not overflow.
    audible = limit_peak(check_pcm(pcm))
    samples = limit_peak(resample(audible, source_rate_hz, spec.sample_rate_hz), ceiling)
    if not samples.size:
        raise InvalidAudioError(
            "There is no audio to encode; try again, or try another voice.", samples=pcm.size
        )
    data = _encode_samples(samples, spec)
    # Only a lossy codec in a container pads what it is given.
    pads = spec.traits.lossy and not spec.traits.headerless
    frames = soundfile.info(io.BytesIO(data)).frames if pads else samples.size
    return Encoded(
        data=data,
        content_type=spec.content_type,
        extension=spec.traits.extension,
        sample_rate_hz=spec.sample_rate_hz,
        frames=frames,
        duration_s=frames / spec.sample_rate_hz,
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _encode_samples(samples: Pcm, spec: OutputSpec) -> bytes:
    audio_format, rate_hz = spec.format, spec.sample_rate_hz
    match audio_format:
        case AudioFormat.PCM:
            return to_int16(samples).astype("<i2").tobytes()
        case AudioFormat.ULAW | AudioFormat.ALAW:
            return _write(to_int16(samples), rate_hz, "RAW", audio_format.upper())
        case AudioFormat.WAV | AudioFormat.FLAC:
            return _write(to_int16(samples), rate_hz, audio_format.upper(), "PCM_16")
        case AudioFormat.VORBIS:
            return _write(samples, rate_hz, "OGG", "VORBIS")
        case AudioFormat.OPUS:
            return _write_opus(samples, spec)
        case AudioFormat.MP3:
            return _write_mp3(samples, spec)


def _write_opus(samples: Pcm, spec: OutputSpec) -> bytes:
    def at(kbps: float) -> bytes:
        level = (_OPUS_HIGHEST_KBPS - kbps) / (_OPUS_HIGHEST_KBPS - _OPUS_LOWEST_KBPS)
        return _write(samples, spec.sample_rate_hz, "OGG", "OPUS", level=level)

    return _meet_bitrate(at, _bitrate_kbps(spec), samples.size / spec.sample_rate_hz)


def _write_mp3(samples: Pcm, spec: OutputSpec) -> bytes:
    kbps, rate_hz = _bitrate_kbps(spec), spec.sample_rate_hz
    samples_per_frame, lowest_kbps, highest_kbps = _mpeg_limits(rate_hz)

    def at(target_kbps: float, mode: BitrateMode) -> bytes:
        # libsndfile truncates to whole kbit/s, so aim at the middle of the wanted one.
        middle_kbps = round(target_kbps) + 0.5
        level = (highest_kbps - middle_kbps) / (highest_kbps - lowest_kbps)
        return _write(samples, rate_hz, "MP3", "MPEG_LAYER_III", level=level, mode=mode)

    if samples_per_frame / 8 * kbps * 1000 / rate_hz >= _INFO_TAG_BYTES:
        return at(kbps, "CONSTANT")
    return _meet_bitrate(lambda target: at(target, "AVERAGE"), kbps, samples.size / rate_hz)


def _mpeg_limits(rate_hz: int) -> tuple[int, int, int]:
    """Give samples per frame and libsndfile's lowest and highest bitrate of the MPEG version."""
    if rate_hz >= MPEG1_MIN_RATE_HZ:
        return 1152, 32, 320
    if rate_hz >= MPEG2_MIN_RATE_HZ:
        return 576, 8, 160
    return 576, 8, 64


def _bitrate_kbps(spec: OutputSpec) -> int:
    if spec.bitrate_kbps is None:
        raise ValueError(f"an output of {spec.format} needs a bitrate: make it by resolve_output")
    return spec.bitrate_kbps


def _meet_bitrate(encode_at: Callable[[float], bytes], kbps: int, duration_s: float) -> bytes:
    """Correct a variable-bitrate encoder's target until the file has the bitrate asked for."""
    target_kbps = float(kbps)
    best, best_error = b"", float("inf")
    for _ in range(_MAX_PASSES):
        data = encode_at(target_kbps)
        error = len(data) * 8 / 1000 / duration_s / kbps - 1
        if abs(error) < best_error:
            best, best_error = data, abs(error)
        if best_error <= _BITRATE_TOLERANCE or duration_s < _MIN_MEASURABLE_S:
            break
        target_kbps /= 1 + error
    return best


def _write(
    samples: Pcm | npt.NDArray[np.int16],
    rate_hz: int,
    container: str,
    codec: str,
    *,
    level: float | None = None,
    mode: BitrateMode | None = None,
) -> bytes:
    buffer = io.BytesIO()
    with soundfile.SoundFile(
        buffer,
        "w",
        samplerate=rate_hz,
        channels=1,
        format=container,
        subtype=codec,
        compression_level=None if level is None else min(max(level, 0.0), _MAX_LEVEL),
        bitrate_mode=mode,
    ) as file:
        # One write of 8 MiB to a Vorbis stream overflows the thread's stack: a second at a time.
        for start in range(0, samples.size, rate_hz):
            file.write(samples[start : start + rate_hz])
    return buffer.getvalue()
