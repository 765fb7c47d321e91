"""hibari in a worker process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hibari import Hibari

from utterd.engines.hibari.describe import VOICE
from utterd.engines.hibari.phonemes import MAX_PHONEMES, load_phonemizer, split_phonemes
from utterd.engines.protocol import NO_OPTIONS, Take
from utterd.errors import EmptyTextError

if TYPE_CHECKING:
    from utterd.engines.protocol import PCM, CancelToken, EngineOptions, Utterance


class HibariEngine:
    """One model, one request at a time: its phonemizer keeps state between calls."""

    def __init__(self, model: Hibari) -> None:
        self._model = model

    def speak(self, utterance: Utterance, cancel: CancelToken) -> Take:
        """Speak one segment; the same utterance gives the same samples.

        Raises:
            EmptyTextError: no character of the segment has a sound in English.
            CancelledByCallerError: `cancel` was used.
        """
        phonemes = self._model.g2p(utterance.text, normalize_text=False)
        random = np.random.default_rng(utterance.seed)
        parts: list[PCM] = []
        for piece in split_phonemes(phonemes, MAX_PHONEMES):
            cancel.raise_if_cancelled()
            parts.append(
                self._model.from_ids(self._model.ids(piece), speed=utterance.speed, rng=random)
            )
        if not any(part.size for part in parts):
            raise EmptyTextError(
                "nothing to say: the voice knows no sound for these characters. Send text in the"
                " voice's language, or choose another voice"
            )
        return Take(np.concatenate(parts))


def load(options: EngineOptions = NO_OPTIONS, *, threads: int) -> HibariEngine:  # noqa: ARG001 - the protocol's
    """Load the model and its phonemizer, and speak once so that the first job finds it warm."""
    model = Hibari(voice=VOICE, threads=threads, g2p=load_phonemizer())
    model("Ready.")
    return HibariEngine(model)
