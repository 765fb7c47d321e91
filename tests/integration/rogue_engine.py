"""An engine that misbehaves on request, for tests of what guards the daemon from its engines.

The first word of an utterance says what to do; the second and third are named pipes, to tell
the test that the work has begun and to be told when to end it.
"""

import os
import signal
import sys
import threading
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
from utterd.errors import ConfigurationError, EngineFailedError, UnknownVoiceError
from utterd.text.reading import Reading, read_sentences

LOAD_VARIABLE = "ROGUE_LOAD"
"""Environment variable: `exit`, `hang`, `perish` or `refuse` while the model is loaded."""

GROWTH_BYTES = 300_000_000


class RogueEngine:
    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self._spoken = 0
        self._ballast = np.zeros(0, np.uint8)

    def speak(self, utterance: Utterance, cancel: CancelToken) -> Take:
        faults = ("runaway",) if utterance.text == "ramble" else ()
        return Take(self._samples(utterance, cancel), faults)

    def _samples(self, utterance: Utterance, cancel: CancelToken) -> PCM:  # noqa: C901, PLR0912 - a list of misdeeds
        what, *pipes = utterance.text.split()
        if pipes:
            Path(pipes[0]).write_text(str(os.getpid()), encoding="ascii")
        match what:
            case "pid":
                return np.array([os.getpid()], np.float32)
            case "count":
                self._spoken += 1
                return np.array([self._spoken], np.float32)
            case "steps":
                return np.array([self._options.euler_steps], np.float32)
            case "hold":
                Path(pipes[1]).read_text(encoding="ascii")
            case "obey":
                while not threading.Event().wait(0.01):
                    cancel.raise_if_cancelled()
            case "grow":
                self._ballast = np.ones(GROWTH_BYTES, np.uint8)
                threading.Event().wait()
            case "ignore":
                threading.Event().wait()
            case "raise":
                raise ValueError(utterance.text)
            case "exit":
                sys.exit(utterance.text)
            case "refuse":
                raise UnknownVoiceError("no such voice", voices=["a"])
            case "unfit":
                raise EngineFailedError("a detail that JSON can't hold", value=object())  # type: ignore[arg-type]
            case "nothing":
                return None  # type: ignore[return-value]
            case "threads":
                return np.array([float(os.environ["OPENBLAS_NUM_THREADS"])], np.float32)
            case "print":
                print("printed by the engine", flush=True)  # noqa: T201 - the misdeed
                os.write(1, b"written by a C library\n")
        return np.zeros(1, np.float64)


def describe(options: EngineOptions = NO_OPTIONS) -> EngineInfo:
    del options
    return EngineInfo(
        name="rogue",
        version="1",
        bundle="0" * 64,
        sample_rate_hz=24_000,
        voices=(Voice(name="only", languages=("en",), description="for tests"),),
    )


def read(text: str, *, language: str, normalize: bool) -> list[Reading]:
    del language, normalize
    return read_sentences(text, max_chars=240, spoken_form=str)


def load(options: EngineOptions, *, threads: int) -> RogueEngine:
    del threads
    match os.environ.get(LOAD_VARIABLE):
        case "exit":
            sys.exit(3)
        case "refuse":
            raise ConfigurationError("the model is another one: put it back")
        case "hang":
            threading.Event().wait()
        case "perish":
            os.kill(os.getpid(), signal.SIGKILL)
    return RogueEngine(options)
