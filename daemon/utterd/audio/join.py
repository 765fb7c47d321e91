"""Make one recording of the clips that an engine spoke, without a click between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from utterd.audio.pcm import (
    Pcm,
    audible_frames,
    check_pcm,
    fade_edges,
    frame_length,
    limit_peak,
    runs,
    trim_silence,
)
from utterd.errors import InvalidAudioError

MAX_INNER_SILENCE_S: Final = 0.8
"""Pauses that were asked for stand between clips, so a longer one inside is the engine's slip."""

LEAD_SILENCE_S: Final = 0.010
"""Players and codecs that swallow the first milliseconds take these."""

TAIL_SILENCE_S: Final = 0.050
"""The last word's decay is over before the recording is, whatever the engine left there."""


@dataclass(frozen=True, slots=True)
class Clip:
    """What an engine spoke for one segment.

    Attributes:
        pcm: float32 mono samples, shape (n,).
        pause_after_s: silence until the next clip, 0 or more.
    """

    pcm: Pcm
    pause_after_s: float


@dataclass(frozen=True, slots=True)
class Span:
    """Where one clip is heard in the joined recording, in seconds from its start."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Joined:
    """The recording, and the place of each clip in it, in the clips' order.

    Attributes:
        pcm: float32 mono samples, shape (n,), within full scale, zero at both ends.
        spans: one for each clip; a clip without audible sound has an empty one.
    """

    pcm: Pcm
    spans: tuple[Span, ...]


def join(clips: Sequence[Clip], sample_rate_hz: int) -> Joined:
    """Trim each clip, shorten its inner silences, fade its edges, and line all up with pauses.

    The peak is limited once for the whole recording, so that its sentences keep their loudness
    relative to each other.

    Args:
        clips: in the order in which they are heard.
        sample_rate_hz: of every clip and of the result.

    Raises:
        InvalidAudioError: a clip isn't finite float32 mono, or none of them can be heard.
    """
    parts = [_silence(LEAD_SILENCE_S, sample_rate_hz)]
    position = parts[0].size
    spans: list[Span] = []
    for clip in clips:
        pieces = _tidy(check_pcm(clip.pcm), sample_rate_hz)
        pause = _silence(clip.pause_after_s, sample_rate_hz)
        end = position + sum(piece.size for piece in pieces)
        spans.append(Span(position / sample_rate_hz, end / sample_rate_hz))
        parts += (*pieces, pause)
        position = end + pause.size
    if all(span.start_s == span.end_s for span in spans):
        raise InvalidAudioError(
            "The engine returned no audible sound; try again, or try another voice.",
            clips=len(clips),
        )
    missing_tail_s = TAIL_SILENCE_S - clips[-1].pause_after_s
    parts.append(_silence(max(0.0, missing_tail_s), sample_rate_hz))
    return Joined(limit_peak(np.concatenate(parts)), tuple(spans))


def _silence(duration_s: float, sample_rate_hz: int) -> Pcm:
    return np.zeros(round(duration_s * sample_rate_hz), np.float32)


def _tidy(pcm: Pcm, sample_rate_hz: int) -> list[Pcm]:
    speech = trim_silence(pcm, sample_rate_hz)
    pieces = _split_at_long_silences(speech, sample_rate_hz)
    return [fade_edges(piece, sample_rate_hz) for piece in pieces]


def _split_at_long_silences(pcm: Pcm, sample_rate_hz: int) -> list[Pcm]:
    length = frame_length(sample_rate_hz)
    keep = round(MAX_INNER_SILENCE_S / 2 * sample_rate_hz)
    pieces = []
    start = 0
    for first, last in runs(~audible_frames(pcm, sample_rate_hz)):
        if (last - first) * length > 2 * keep:
            pieces.append(pcm[start : first * length + keep])
            start = last * length - keep
    return [*pieces, pcm[start:]]
