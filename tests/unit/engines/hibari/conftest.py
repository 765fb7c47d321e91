"""hibari's phonemizer and model, each loaded once."""

from collections.abc import Callable

import pytest
from hibari.g2p import G2P

from utterd.engines.hibari import load
from utterd.engines.hibari.engine import HibariEngine
from utterd.engines.hibari.front_end import spoken_form
from utterd.engines.hibari.phonemes import load_phonemizer

Reader = Callable[[str], str]


@pytest.fixture(scope="session")
def phonemizer() -> G2P:
    return load_phonemizer()


@pytest.fixture(scope="session")
def phonemes(phonemizer: G2P) -> Reader:
    """What hibari says for a written text, as phonemes."""

    def read(text: str, *, normalize: bool = True) -> str:
        spoken = spoken_form(text, normalize=normalize)
        return str(phonemizer(spoken, normalize_text=False))

    return read


@pytest.fixture(scope="session")
def engine() -> HibariEngine:
    return load(threads=1)
