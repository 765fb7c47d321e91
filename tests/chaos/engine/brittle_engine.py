"""An engine that loads at once, hums, and can be told to break.

It stands where a real one would, in worker processes of its own. The first word of a segment
says what goes wrong.
"""

import os
import signal
import tempfile
import threading
import zlib
from pathlib import Path

import numpy as np

from utterd.engines.protocol import (
    NO_OPTIONS,
    PCM,
    CancelToken,
    EngineInfo,
    EngineOptions,
    Take,
    Utterance,
    Voice,
)
from utterd.errors import EngineFailedError
from utterd.text.reading import Reading, read_sentences

PERISH = "Perish"
"""Kills its worker, each time."""
STUMBLE = "Stumble"
"""Kills its worker, the first time."""
HANG = "Hang"
"""Stops its worker, as a native call that never returns does, the first time."""
FAIL = "Fail"
"""Fails, the first time."""

SAMPLE_RATE_HZ = 24_000
_SECONDS_PER_CHAR = 0.05
_FADE_S = 0.05


class BrittleEngine:
    def speak(self, utterance: Utterance, cancel: CancelToken) -> Take:
        return Take(self._samples(utterance, cancel))

    def _samples(self, utterance: Utterance, cancel: CancelToken) -> PCM:
        cancel.raise_if_cancelled()
        match utterance.text.split()[0].rstrip("."):
            case word if word == PERISH:
                os.kill(os.getpid(), signal.SIGKILL)
            case word if word == STUMBLE and is_first_time(utterance.text):
                os.kill(os.getpid(), signal.SIGKILL)
            case word if word == HANG and is_first_time(utterance.text):
                os.kill(os.getpid(), signal.SIGSTOP)
                # The kernel stops one thread after the other, and this one may be late.
                threading.Event().wait()
            case word if word == FAIL and is_first_time(utterance.text):
                raise EngineFailedError("it was asked to fail")
        return hum(utterance.text, utterance.speed)


def is_first_time(text: str) -> bool:
    """Whether no worker has come by this text; remembered in a file, for workers die of it."""
    mark = Path(tempfile.gettempdir()) / f"brittle-{zlib.crc32(text.encode()):08x}"
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def hum(text: str, speed: float) -> PCM:
    """A tone as long as the text would take, at a pitch of its own, float32 of shape (n,)."""
    duration_s = len(text) * _SECONDS_PER_CHAR / speed
    seconds = np.arange(round(duration_s * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    pitch_hz = 150.0 + zlib.crc32(text.encode()) % 4096 / 16
    fade = np.clip((duration_s - seconds) / _FADE_S, 0.0, 1.0)
    return (0.5 * fade * np.sin(2 * np.pi * pitch_hz * seconds)).astype(np.float32)


def describe(options: EngineOptions = NO_OPTIONS) -> EngineInfo:
    del options
    return EngineInfo(
        name="brittle",
        version="1",
        bundle="b" * 64,
        sample_rate_hz=SAMPLE_RATE_HZ,
        voices=(Voice(name="hum", languages=("en",), description="for tests"),),
    )


def read(text: str, *, language: str, normalize: bool) -> list[Reading]:
    del language, normalize
    return read_sentences(text, max_chars=240, spoken_form=str)


def load(options: EngineOptions, *, threads: int) -> BrittleEngine:
    del options, threads
    return BrittleEngine()
