"""hibari's phonemizer, without its two silent losses: long words and rare accents."""

import unicodedata

from hibari.g2p import G2P
from hibari.g2p.oov import OOV

# The longest phoneme string that the model was trained on.
MAX_PHONEMES = 400


class WholeWords:
    """Reads words that are not in the lexicon, to their last letter.

    The network alone drops letters that it was not trained on, and whatever comes after its
    longest word.
    """

    def __init__(self, network: OOV) -> None:
        self._network = network

    def __call__(self, word: str) -> str:
        """Phonemes of a word; empty where no letter has a sound in English."""
        letters = "".join(map(self._known, word))
        size = self._network.maxlen
        parts = (letters[start : start + size] for start in range(0, len(letters), size))
        return "".join(self._network(part) or "" for part in parts)

    def _known(self, letter: str) -> str:
        """The letter, or without its accent where the network knows it only so."""
        if letter in self._network.cin:
            return letter
        base = unicodedata.normalize("NFD", letter)[0]
        return base if base in self._network.cin else ""


def load_phonemizer() -> G2P:
    return G2P(oov=WholeWords(OOV()))


def split_phonemes(phonemes: str, limit: int) -> list[str]:
    """Cut a phoneme string at spaces into pieces of at most `limit`, or anywhere without one."""
    pieces = []
    while len(phonemes) > limit:
        cut = phonemes.rfind(" ", 1, limit + 1)
        cut = limit if cut < 0 else cut
        pieces.append(phonemes[:cut].strip())
        phonemes = phonemes[cut:].strip()
    return [piece for piece in (*pieces, phonemes) if piece]
