"""hibari's front end: what is written, and what is said."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from utterd.engines.hibari.front_end import spoken_form
from utterd.text.repair import repair

Reader = Callable[..., str]


def words(phonemes: str) -> str:
    """Phonemes without stress, which depends on how a word is written, and with single spaces."""
    return " ".join(phonemes.replace("ˈ", "").replace("ˌ", "").split())


@pytest.mark.parametrize(
    ("written", "said"),
    [
        # T-64: words in angle brackets are words; comparisons stay comparisons.
        ("This is a <test> message.", "This is a test message."),
        (
            "3 < 5 and 5>3.",
            "three less than five and five greater than three.",
        ),
        # A job's text holds no control sequences.
        ("<|zh|> hello", "zh hello"),
        ("[cat](/dˈɔɡ/)", "[cat] (/dˈɔɡ/)"),
        # T-26, T-70: readings that hibari gets right alone.
        ("Room 806 is next to room 131.", "Room 806 is next to room 131."),
        ("It costs $5.20 or £3.", "five dollars and twenty cents"),
        ("At 9:05 on 2024-03-05.", "At nine oh five on March fifth, twenty twenty four."),
        # Codes keep their zeros, numbers that nobody follows are spelt.
        ("Agent 007", "Agent zero zero seven"),
        ("-007", "minus zero zero seven"),
        ("zip 02134-0001", "zip zero two one three four zero zero zero one"),
        (
            "1234567890123456",
            "one two three four five six seven eight nine zero one two three four five six",
        ),
        ("1,000,000,000,000,000,000", "one quintillion"),
        ("0.05", "zero point zero five"),
        ("1000", "one thousand"),
        # Digits of other styles and scripts.
        ("x² and x³", "x squared and x cubed"),
        ("H₂O", "H two O"),
        ("①②③", "one two three"),
        ("⑽ ⒍ ❼", "ten six seven"),
        ("½ cup", "one half cup"),
        ("2½ cups, ⅔ full", "two and one half cups, two thirds full"),
        ("١٢٣", "one hundred twenty three"),
    ],
)
def test_says_what_is_written(phonemes: Reader, written: str, said: str):
    """The phonemes of the written form are those of the words that a person would say."""
    assert words(phonemes(said)) in words(phonemes(written))


@pytest.mark.parametrize("written", ["Agent 007", "½ cup", "x²", "⒍", "1" * 200, "a" + "1" * 40])
def test_numbers_are_said_without_normalisation(phonemes: Reader, written: str):
    """`normalize` off loses no number and breaks at none."""
    assert phonemes(written, normalize=False).strip()


def test_normalisation_can_be_left_out():
    """Dates and units then go to the lexicon as they are."""
    text = "On 2024-11-12, 5 km."
    assert spoken_form(text, normalize=False) == text
    assert spoken_form(text, normalize=True) == "On November twelfth, 2024, 5 kilometers."


def test_a_long_run_without_spaces_is_broken_up():
    """A hash is read in pieces, a long word stays whole."""
    digest = "9a3c-" * 12
    spoken = spoken_form(digest, normalize=False)
    assert spoken.replace(" ", "") == digest
    assert " " in spoken
    word = "pneumonoultramicroscopicsilicovolcanoconiosis"
    assert spoken_form(word, normalize=False) == word


@pytest.mark.parametrize("unit", ["a-", "a1", "0P", "aB", "a_b", "1,a", "$1", "the-"])
def test_a_segment_without_spaces_is_read_in_a_moment(phonemes: Reader, unit: str):
    """The lexicon would need several seconds for it; the bound leaves a slow machine its time."""
    start_s = time.process_time()
    phonemes(unit * (240 // len(unit)), normalize=False)
    assert time.process_time() - start_s < 1.0


def test_white_space_is_one_space():
    """Spaces of all widths are the same to the lexicon."""
    assert spoken_form("  a\u3000b \n c ", normalize=False) == "a b c"


# What the lexicon's rules look at: digits of all kinds, signs, currencies, suffixes, apostrophes.
RULE_ALPHABET = (
    "0123456789" * 2
    + ".,:-/$£€¥₹%#@&+*=<>|[]()'\"’‘“”…—–_~^\\ "
    + "abdeghiknorstxABCIMPVX"
    + "¼½¾⅓²³¹₂①⑩⑽⒍❼٣४０éñßꜳﬁ°©№中あ한Ж🙂\u0301\u2044"
)
HOSTILE = st.one_of(
    st.text(RULE_ALPHABET, max_size=240),
    st.lists(st.sampled_from(["1", "0", "000", ",", ".", "-", "$", "th", "'s", " "])).map("".join),
    st.text(st.characters(exclude_categories=()), max_size=60),
    st.builds(
        lambda unit, times: (unit * times)[:240],
        st.text(RULE_ALPHABET, min_size=1, max_size=4),
        st.integers(1, 240),
    ),
)


# The first example of a process loads the model.
@settings(deadline=None)
@given(text=HOSTILE, normalize=st.booleans())
def test_the_lexicon_reads_every_spoken_form(phonemes: Reader, text: str, *, normalize: bool):
    """No text of a segment's length makes the phonemizer raise."""
    phonemes(repair(text)[:240], normalize=normalize)


@given(text=HOSTILE, normalize=st.booleans())
def test_no_spoken_form_holds_a_phoneme_link(text: str, *, normalize: bool):
    """No job reaches hibari's own notation for pronunciations."""
    spoken = spoken_form(repair(text), normalize=normalize)
    assert "](" not in spoken
    assert "|" not in spoken


@given(st.text("0123456789", min_size=1, max_size=240))
def test_every_digit_of_a_code_is_said(digits: str):
    """Spelling takes no digit away."""
    assert "".join(spoken_form("0" + digits, normalize=True).split()) == "0" + digits
