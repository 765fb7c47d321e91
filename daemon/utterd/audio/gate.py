"""Judge whether what an engine spoke is plausible speech for its text."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from utterd.audio.pcm import (
    AUDIBLE_POWER,
    SILENT_PEAK,
    Pcm,
    check_pcm,
    frame_length,
    frame_power,
    peak,
    runs,
)

Reason: TypeAlias = Literal[
    "silent",
    "too_short",
    "too_long",
    "mostly_silent",
    "long_silence",
    "clipped",
    "overdriven",
    "cut_tail",
]

# The fastest readers reach about 25 characters a second; beyond 33 words are missing.
MIN_S_PER_CHAR: Final = 0.03
# A slow syllable lasts 0.4 s and is a single character in Chinese and Japanese; what lasts
# longer than this is a decoder that found no end. The base leaves room for edges and pauses.
MAX_S_PER_CHAR: Final = 0.6
MAX_BASE_S: Final = 3.0
# The packaged voice frames a single word in silence of up to 0.6 of the clip.
MAX_SILENCE_RATIO: Final = 0.8
# Its longest silence at speed 1 is 0.45 s, and no reader waits for two seconds in a sentence.
MAX_SILENCE_S: Final = 2.0
# Speech mastered to full scale touches it with single samples; clipping flattens many.
FULL_SCALE: Final = 0.999
MAX_CLIPPED_RATIO: Final = 0.001
# Vocoders overshoot full scale by a few per cent; twice of it is a burst, not a voice.
MAX_PEAK: Final = 2.0
# The packaged voice ends its words 9 dB or more below their mean level.
CUT_TAIL_S: Final = 0.010
MAX_TAIL_RATIO: Final = 10 ** (-6 / 20)


@dataclass(frozen=True, slots=True)
class Quality:
    """The verdict on one clip, and the figures it rests on.

    Attributes:
        verdict: "suspect" if there is at least one reason.
        reasons: stable words, in a fixed order.
        duration_s: of the clip as the engine gave it.
        peak: the largest magnitude; full scale is 1.0.
        silence_ratio: the share of the clip that can't be heard, 0 to 1.
        clipped_ratio: the share of samples at or above full scale, 0 to 1.
    """

    verdict: Literal["ok", "suspect"]
    reasons: tuple[Reason, ...]
    duration_s: float
    peak: float
    silence_ratio: float
    clipped_ratio: float


def judge(pcm: Pcm, *, sample_rate_hz: int, spoken_chars: int, speed: float) -> Quality:
    """Judge one clip as the engine gave it, before trimming.

    Args:
        pcm: float32 mono samples, shape (n,); no samples are judged silent.
        sample_rate_hz: of the samples.
        spoken_chars: letters and digits in the spoken form of the text.
        speed: that the engine was asked for; durations scale with it.

    Raises:
        InvalidAudioError: the samples aren't finite float32 mono.
    """
    loudest = peak(check_pcm(pcm))
    duration_s = pcm.size / sample_rate_hz
    power = frame_power(pcm, sample_rate_hz, loudest)
    audible = power > AUDIBLE_POWER
    silence_ratio = 1.0 - np.count_nonzero(audible) / audible.size if audible.size else 1.0
    clipped_ratio = _clipped_ratio(pcm) if loudest >= FULL_SCALE else 0.0
    frame_s = frame_length(sample_rate_hz) / sample_rate_hz
    longest_silence_s = max((stop - start for start, stop in runs(~audible)), default=0) * frame_s
    tail = pcm[-max(1, round(CUT_TAIL_S * sample_rate_hz)) :]
    silent = loudest < SILENT_PEAK

    findings: dict[Reason, bool] = {
        "silent": silent,
        "too_short": duration_s * speed < MIN_S_PER_CHAR * spoken_chars,
        "too_long": duration_s * speed > MAX_BASE_S + MAX_S_PER_CHAR * spoken_chars,
        "mostly_silent": not silent and silence_ratio > MAX_SILENCE_RATIO,
        "long_silence": not silent and longest_silence_s * speed > MAX_SILENCE_S,
        "clipped": clipped_ratio > MAX_CLIPPED_RATIO,
        "overdriven": loudest > MAX_PEAK,
        "cut_tail": not silent and _tail_ratio(tail / loudest, power[audible]) > MAX_TAIL_RATIO,
    }
    reasons = tuple(reason for reason, found in findings.items() if found)
    return Quality(
        verdict="suspect" if reasons else "ok",
        reasons=reasons,
        duration_s=duration_s,
        peak=loudest,
        silence_ratio=silence_ratio,
        clipped_ratio=clipped_ratio,
    )


def _clipped_ratio(pcm: Pcm) -> float:
    return float(np.mean(np.abs(pcm) >= FULL_SCALE))


def _tail_ratio(tail: Pcm, power: Pcm) -> float:
    """Compare the level of the last samples with the mean level of what is audible.

    Args:
        tail: the samples, where the clip's loudest one counts as 1.
        power: of the audible frames, from `frame_power`.
    """
    return float(np.sqrt(np.dot(tail, tail) / tail.size / power.mean()))
