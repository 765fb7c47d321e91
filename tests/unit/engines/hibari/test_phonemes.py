"""hibari's phonemizer."""

from hibari.g2p import G2P
from hypothesis import given
from hypothesis import strategies as st

from utterd.engines.hibari.phonemes import split_phonemes


def test_an_unknown_word_is_read_to_its_last_letter(phonemizer: G2P):
    """A longer ending is heard, however long the word is already."""
    word = "zorblaxifrumptious" * 3
    assert len(phonemizer(word * 2)) > 1.8 * len(phonemizer(word))
    assert phonemizer(word + "kami") != phonemizer(word)


def test_rare_accents_do_not_silence_their_letters(phonemizer: G2P):
    """A letter that the network was not trained on is read without its accent."""
    assert phonemizer("Nguyễn") == phonemizer("Nguyen")
    assert phonemizer("zẽrblạx") == phonemizer("zerblax")


def test_words_without_any_known_letter_are_silent(phonemizer: G2P):
    """Nothing raises; the engine tells that there is nothing to say."""
    assert phonemizer("ก ᠠ") == ""


@given(st.text("aˈɪ z", max_size=200), st.integers(1, 40))
def test_splitting_phonemes_loses_none(phonemes: str, limit: int):
    """Each piece fits the model, and only spaces are left out."""
    pieces = split_phonemes(phonemes, limit)
    assert "".join("".join(pieces).split()) == "".join(phonemes.split())
    assert all(0 < len(piece) <= limit for piece in pieces)


def test_splits_at_spaces():
    """A word is cut only where it is longer than the limit."""
    assert split_phonemes("aaa bbb ccc", 8) == ["aaa bbb", "ccc"]
    assert split_phonemes("aaaaaaaaaa b", 4) == ["aaaa", "aaaa", "aa b"]
