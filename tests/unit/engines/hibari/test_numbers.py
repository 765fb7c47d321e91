"""Digits that hibari's lexicon can't read as they come."""

import sys
import unicodedata

import pytest

from utterd.engines.hibari.numbers import plain_digits, spell_codes


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("no digits, é中🙂", "no digits, é中🙂"),
        ("٤٢", "42"),
        ("x²", "x 2 "),
        ("⑳", " 20 "),
        ("½", " 1/2 "),
        ("3¾", "3 and 3/4 "),
        ("1\u20442", "1/2"),
        ("Ⅳ", "Ⅳ"),
    ],
)
def test_writes_digits_in_ascii(text: str, plain: str):
    """Styled numbers stand apart from their neighbours, fractions get a slash."""
    assert plain_digits(text) == plain


def test_keeps_what_something_else_reads():
    """A character that is kept is left to the next step."""
    assert plain_digits("x² y₂", keep="²") == "x² y 2 "


def test_leaves_no_digit_of_another_script():
    """Of all characters, none is a digit afterwards that is not in ASCII."""
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert not [char for char in plain_digits(everything) if char.isdigit() and not char.isascii()]
    assert unicodedata.numeric("፼") == 10_000
    assert plain_digits("፼") == " 10000 "


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("42", "42"),
        ("0", "0"),
        ("0.5", "0.5"),
        ("10.05", "10.05"),
        ("1,000.50", "1,000.50"),
        ("09:05", "09:05"),
        ("08", " 0 8 "),
        ("-08", " -0 8 "),
        ("a-08", "a- 0 8 "),
        ("1" * 15, "1" * 15),
        ("1" * 16 + "th", " " + " ".join("1" * 16) + " th"),
        ("1" * 16 + ".25", " " + " ".join("1" * 16) + " point 2 5 "),
        (",".join(["111"] * 10), ",".join(["111"] * 10)),
        (",".join(["111"] * 11), " " + " ".join("1" * 33) + " "),
    ],
)
def test_spells_codes_alone(text: str, spelt: str):
    """Numbers that a person would read as a number stay whole."""
    assert spell_codes(text) == spelt
