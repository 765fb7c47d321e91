"""Mono samples as the engines give them: legal, audible, limited, and quiet at their edges."""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from utterd.errors import InvalidAudioError

Pcm: TypeAlias = npt.NDArray[np.float32]
"""Mono samples, shape (n,), full scale at -1.0 and 1.0."""

FADE_S: Final = 0.005
"""Long enough to hide a cut, short enough to leave a plosive's attack alone."""

SILENT_PEAK: Final = 10 ** (-60 / 20)
"""A clip that stays below -60 dBFS can't be heard beside speech."""

AUDIBLE_POWER: Final = 10 ** (-50 / 10)
"""Of a frame, relative to the loudest sample's. Final fricatives lie as low as 45 dB below a
vowel's peak and must survive the trim."""

_FRAME_S: Final = 0.005
# Far beyond speech, and far below where the square of a float32 overflows.
_SAFE_PEAK: Final = 1e6
# Kept around what is audible, so that onsets and decays below the threshold are not cut.
_MARGIN_S: Final = 0.020
# The closure before a plosive is shorter than this gap and its release may be as short as this
# burst, so only what no mouth does is dropped: a blip far away from the speech.
_STRAY_GAP_S: Final = 0.200
_STRAY_S: Final = 0.040


def check_pcm(pcm: npt.NDArray[np.generic]) -> Pcm:
    """Return the samples unchanged if they are what an engine may give.

    Raises:
        InvalidAudioError: the array isn't float32 of shape (n,), or a sample is not finite.
    """
    if pcm.dtype != np.float32 or pcm.ndim != 1:
        raise InvalidAudioError(
            "The engine returned an array that is not float32 mono; try again, and report the "
            "engine if it happens each time.",
            dtype=str(pcm.dtype),
            shape=list(pcm.shape),
        )
    samples = pcm.astype(np.float32, copy=False)
    if not np.isfinite(samples).all():
        raise InvalidAudioError(
            "The engine returned samples that are not finite; try again, and report the voice "
            "if it happens each time.",
            non_finite=int(np.count_nonzero(~np.isfinite(samples))),
        )
    return samples


def peak(pcm: Pcm) -> float:
    """Give the largest magnitude, 0.0 for no samples."""
    return max(float(pcm.max(initial=0.0)), -float(pcm.min(initial=0.0)))


def limit_peak(pcm: Pcm, ceiling: float = 1.0) -> Pcm:
    """Bring the peak down to the ceiling; what lies below it already is returned as it is.

    All samples are scaled alike instead of bent near the ceiling: scaling adds no distortion,
    and engines overshoot so little that the lost loudness can't be heard.
    """
    loudest = peak(pcm)
    top = np.float32(ceiling)
    if loudest <= top:
        return pcm
    # The clip catches the last bit that rounding may leave above the ceiling.
    return np.asarray(np.clip(pcm * np.float32(ceiling / loudest), -top, top), np.float32)


def to_int16(pcm: Pcm) -> npt.NDArray[np.int16]:
    """Round to 16 bits; samples outside full scale are clamped and never wrap."""
    scaled = np.clip(pcm, -1.0, 1.0)
    # In place: new memory for each step takes longer than the arithmetic.
    scaled *= np.float32(32767)
    np.rint(scaled, out=scaled)
    return np.asarray(scaled, np.int16)


def fade_edges(pcm: Pcm, sample_rate_hz: int) -> Pcm:
    """Return a copy that starts and ends at exactly zero, by raised-cosine ramps of `FADE_S`."""
    faded = pcm.copy()
    if faded.size:
        length = max(1, min(round(FADE_S * sample_rate_hz), faded.size // 2))
        ramp = (0.5 - 0.5 * np.cos(np.pi * np.arange(length) / length)).astype(np.float32)
        faded[:length] *= ramp
        faded[-length:] *= ramp[::-1]
    return faded


def frame_length(sample_rate_hz: int) -> int:
    """Give the samples in one frame of `audible_frames`."""
    return max(1, round(_FRAME_S * sample_rate_hz))


def frame_power(pcm: Pcm, sample_rate_hz: int, loudest: float) -> Pcm:
    """Give the mean square of each frame of 5 ms, where the clip's loudest sample counts as 1.

    Args:
        pcm: the clip.
        sample_rate_hz: of the samples.
        loudest: the clip's peak.

    Returns:
        Float32 powers, shape (ceil(n / frame_length),); a last part of a frame is filled with
        silence. All of them are 0 in a clip that can't be heard beside speech.
    """
    length = frame_length(sample_rate_hz)
    whole = pcm.size // length
    power = np.zeros(-(-pcm.size // length), np.float32)
    if loudest < SILENT_PEAK:
        return power
    if loudest > _SAFE_PEAK:
        pcm, loudest = pcm * np.float32(1 / loudest), 1.0
    frames, rest = pcm[: whole * length].reshape(whole, length), pcm[whole * length :]
    power[:whole] = np.einsum("ij,ij->i", frames, frames)
    power[whole:] = np.dot(rest, rest)
    return power / np.float32(length * loudest**2)


def audible_frames(pcm: Pcm, sample_rate_hz: int) -> npt.NDArray[np.bool_]:
    """Tell for each frame of 5 ms whether it can be heard beside the clip's loudest sample.

    Returns:
        Booleans, shape (ceil(n / frame_length),); a last part of a frame counts as one.
    """
    power = frame_power(pcm, sample_rate_hz, peak(pcm))
    return np.asarray(power > AUDIBLE_POWER, np.bool_)


def runs(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """List the half-open index ranges in which the mask is true."""
    padded = np.zeros(mask.size + 2, np.bool_)
    padded[1:-1] = mask
    edges = np.flatnonzero(padded[1:] != padded[:-1]).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def trim_silence(pcm: Pcm, sample_rate_hz: int) -> Pcm:
    """Cut silence off both edges, and stray blips that stand apart from the speech.

    Returns:
        A view of the samples; empty where nothing is audible.
    """
    length = frame_length(sample_rate_hz)
    heard = _without_strays(runs(audible_frames(pcm, sample_rate_hz)), length / sample_rate_hz)
    if not heard:
        return pcm[:0]
    margin = round(_MARGIN_S * sample_rate_hz)
    start = heard[0][0] * length - margin
    stop = heard[-1][1] * length + margin
    return pcm[max(0, start) : stop]


def _without_strays(heard: list[tuple[int, int]], frame_s: float) -> list[tuple[int, int]]:
    def stray(run: tuple[int, int], gap_frames: int) -> bool:
        return (run[1] - run[0]) * frame_s <= _STRAY_S and gap_frames * frame_s >= _STRAY_GAP_S

    first, last = 0, len(heard) - 1
    while first < last and stray(heard[first], heard[first + 1][0] - heard[first][1]):
        first += 1
    while first < last and stray(heard[last], heard[last][0] - heard[last - 1][1]):
        last -= 1
    return heard[first : last + 1]
