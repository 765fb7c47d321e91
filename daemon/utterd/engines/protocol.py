"""What an engine is. Engines run in worker processes; the daemon knows only their description."""

from dataclasses import dataclass
from threading import Event
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

PCM = NDArray[np.float32]
"""Mono samples, shape (n,), full scale 1.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """A speaker of one engine.

    Attributes:
        name: the name within the engine.
        languages: BCP 47 tags of what it speaks.
        description: for a person who chooses a voice.
    """

    name: str
    languages: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What the daemon must know to plan a job, without loading a model.

    Attributes:
        name: the first half of `engine/voice`.
        version: of the code that speaks.
        bundle: digest of every file that decides how it sounds.
        sample_rate_hz: of the samples it makes.
        voices: its speakers.
        max_segment_chars: the longest text that it speaks in one go.
    """

    name: str
    version: str
    bundle: str
    sample_rate_hz: int
    voices: tuple[Voice, ...]
    max_segment_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """One segment, ready to be spoken.

    Attributes:
        text: the spoken form.
        voice: a voice's name within the engine.
        language: BCP 47 tag.
        speed: speaking rate, 1.0 is the voice's own.
        seed: of every random choice.
    """

    text: str
    voice: str
    language: str
    speed: float
    seed: int


class CancelledByCallerError(Exception):
    """The caller no longer wants this utterance."""


class CancelToken:
    """Lets an engine stop early. Engines ask it between steps that each take a moment."""

    def __init__(self) -> None:
        self._cancelled = Event()

    def cancel(self) -> None:
        self._cancelled.set()

    def raise_if_cancelled(self) -> None:
        """Raise `CancelledByCallerError` once `cancel` was called."""
        if self._cancelled.is_set():
            raise CancelledByCallerError


class Engine(Protocol):
    """A loaded model. `speak` may be called from as many threads as the engine's concurrency."""

    def speak(self, utterance: Utterance, cancel: CancelToken) -> PCM:
        """Speak one segment.

        Raises:
            JobError: the utterance can't be spoken.
            CancelledByCallerError: `cancel` was used.
        """
        ...


class EngineModule(Protocol):
    """What the package of an engine offers. Importing it must not import onnxruntime."""

    def describe(self) -> EngineInfo: ...

    def spoken_form(self, text: str, *, normalize: bool) -> str:
        """How the engine's front end writes out numbers, dates and symbols of one segment."""
        ...

    def load(self, *, threads: int) -> Engine: ...
