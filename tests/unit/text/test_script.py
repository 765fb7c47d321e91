"""Writing systems."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.text.script import (
    guess_language,
    is_speakable,
    script_of,
    scripts_in,
    scripts_read_by,
)


@pytest.mark.parametrize(
    ("letters", "script"),
    [
        ("aZéßøﬁªⅰ", "Latin"),
        ("Ａｚ", "Latin"),
        ("ʰⁿ𝓗ℂ", "Latin"),
        ("中々〆㐀豈", "Han"),
        ("あゝーアヽｱ", "Kana"),
        ("한ㄱﾡ", "Hangul"),
        ("αΩµ", "Greek"),
        ("Жд", "Cyrillic"),
        ("שפ", "Hebrew"),
    ],
)
def test_knows_the_script_of_a_letter(letters: str, script: str):
    """Width, height and style of a letter don't change its script."""
    assert {script_of(letter) for letter in letters} == {script}


def test_collects_the_scripts_of_letters_alone():
    """Digits, signs, emoji, accents and apostrophes belong to no script."""
    assert scripts_in("E = mc², 你好! 😀 1€ x\u0302 Hawai\u02bbi o\u02bcclock") == {"Latin", "Han"}
    assert scripts_in("1 + 1 = 2 😀") == frozenset()


def test_a_voice_reads_what_any_of_its_languages_reads():
    """Regions are of no consequence, and an unknown language is written in Latin letters."""
    assert scripts_read_by(["en-GB"]) == {"Latin", "Greek"}
    assert scripts_read_by(["ja", "ko-KR"]) == {"Latin", "Greek", "Han", "Kana", "Hangul"}
    assert scripts_read_by(["nl"]) == {"Latin"}
    assert scripts_read_by([]) == frozenset()


@pytest.mark.parametrize(
    ("text", "speakable"),
    [
        ("a", True),
        ("7", True),
        ("你", True),
        ("½", True),
        ("", False),
        (" \t\r\n　  ", False),
        ("😀🎉👨‍👩‍👧‍👦", False),
        ("?!… — «»", False),
        ("€ + %", False),
    ],
)
def test_only_letters_and_digits_are_speakable(text: str, *, speakable: bool):
    """White space, emoji and punctuation alone say nothing (T-47, T-48)."""
    assert is_speakable(text) is speakable


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("今日は晴れ", "ja"),
        ("カタカナ", "ja"),
        ("大韓民國 만세", "ko"),
        ("你好, world", "zh"),
        ("Hello", "en"),
        ("123", "en"),
    ],
)
def test_guesses_the_language_from_the_script(text: str, language: str):
    """Kana means Japanese also among Han characters, Hangul likewise Korean."""
    assert guess_language(text, default="en") == language


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_is_too_odd(text: str):
    """Every character has a script or none; nothing raises."""
    assert all(scripts_in(text))
