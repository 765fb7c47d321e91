"""What an engine is. Engines run in worker processes; the daemon knows only their description."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from utterd.text.reading import Reading

PCM = NDArray[np.float32]
"""Mono samples, shape (n,), full scale 1.0."""

GIB = 1024**3

DEFAULT_VOICE = "default"
"""Another name of the voice that the settings tell, or else of the engine's first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What the settings tell an engine about its model.

    Attributes:
        bundle: directory of the model; None for engines that carry their own.
        rows: segments that one process may speak at once.
        euler_steps: of the flow that makes spectra of tokens.
        cache_tokens: positions of the language model's cache for each row.
    """

    bundle: Path | None = None
    rows: int = 8
    euler_steps: int = 10
    cache_tokens: int = 2048

    def to_json(self) -> str:
        """For a worker's command line."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The options that `to_json` wrote."""
        fields = json.loads(text)
        return cls(**fields | {"bundle": Path(fields["bundle"]) if fields["bundle"] else None})


NO_OPTIONS = EngineOptions()
"""The defaults, for engines that have nothing to choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """A speaker of one engine.

    Attributes:
        name: the name within the engine.
        languages: BCP 47 tags of what it speaks.
        description: for a person who chooses a voice.
        aliases: other names within the engine.
    """

    name: str
    languages: tuple[str, ...]
    description: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What the daemon must know to plan a job, without loading a model.

    Attributes:
        name: the first half of `engine/voice`.
        version: of the code that speaks.
        bundle: digest of every file and option that decides how it sounds.
        sample_rate_hz: of the samples it makes.
        voices: its speakers.
        concurrency: requests that one process serves at once. Above 1, one process serves all,
            so that the model lies in memory once.
        max_worker_bytes: resident memory beyond which one of its processes must have a leak.
        caveats: what is not as it should be with this model on this machine, and what to do.
    """

    name: str
    version: str
    bundle: str
    sample_rate_hz: int
    voices: tuple[Voice, ...]
    concurrency: int = 1
    max_worker_bytes: int = GIB
    caveats: tuple[str, ...] = ()

    @property
    def aliases(self) -> dict[str, str]:
        """The voices' other names, to `engine/voice`."""
        return {
            alias: f"{self.name}/{voice.name}" for voice in self.voices for alias in voice.aliases
        }


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


@dataclass(frozen=True, slots=True)
class Take:
    """What an engine made of one utterance.

    Attributes:
        pcm: the samples.
        faults: what the engine itself noticed, in stable words, such as `runaway`. A take with
            faults is tried again with another seed, like one that fails a gate.
    """

    pcm: PCM
    faults: tuple[str, ...] = ()


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

    def speak(self, utterance: Utterance, cancel: CancelToken) -> Take:
        """Speak one segment.

        Raises:
            JobError: the utterance can't be spoken.
            CancelledByCallerError: `cancel` was used.
        """
        ...


class EngineModule(Protocol):
    """What the package of an engine offers. Importing it must not import onnxruntime."""

    def describe(self, options: EngineOptions) -> EngineInfo:
        """What the engine is with these options.

        Raises:
            ConfigurationError: the options don't fit, or the model is not there.
        """
        ...

    def read(self, text: str, *, language: str, normalize: bool) -> Iterable[Reading]:
        """How the engine's front end cuts a text and reads it aloud.

        Args:
            text: repaired text, of any length.
            language: BCP 47 tag of what is spoken.
            normalize: whether numbers, dates and units are written out.

        Returns:
            Readings in order, none longer than the engine can speak in one go. Together they
            hold all of the text that can be spoken.
        """
        ...

    def load(self, options: EngineOptions, *, threads: int) -> Engine:
        """Load the model into this process.

        Args:
            options: as they were described.
            threads: cores that this process may keep busy.

        Raises:
            ConfigurationError: the model can't be loaded.
        """
        ...
