"""Unicode repair."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.text.repair import repair

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("price \ud83d ok", "price  ok"),
        ("a\x00b\x07c", "abc"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("soft\u00adhyphen", "softhyphen"),
        ("private\ue000use", "privateuse"),
        ("unassigned\u0378point", "unassignedpoint"),
        (
            "one\r\ntwo\rthree\u2028four\x85five\vsix\fseven",
            "one\ntwo\nthree\nfour\nfive\nsix\nseven",
        ),
        ("tab\tstop", "tab stop"),
        ("Cafe\u0301", "Café"),
        ("Ａ１ｚ，。！", "A1z，。！"),
        ("Ａ\u0301", "Á"),
        ("\u1112\u1161\u11ab", "한"),
    ],
)
def test_repairs(text: str, repaired: str):
    """What can't be spoken goes, what has two spellings gets one, punctuation keeps its width."""
    assert repair(text) == repaired


@given(ANY_TEXT)
def test_repaired_text_is_stable(text: str):
    """A second repair changes nothing."""
    assert repair(repair(text)) == repair(text)


@given(ANY_TEXT)
def test_repaired_text_is_composed_and_visible(text: str):
    """The result is NFC, fits UTF-8, and has no invisible character but the line break."""
    repaired = repair(text)
    assert unicodedata.is_normalized("NFC", repaired)
    assert {unicodedata.category(char)[0] for char in repaired.replace("\n", "")} <= set("LMNPSZ")
    repaired.encode()


@given(st.text(st.characters(exclude_categories=("C",))))
def test_equivalent_spellings_repair_to_the_same(text: str):
    """Composed and decomposed letters are the same text (T-58)."""
    assert repair(unicodedata.normalize("NFD", text)) == repair(unicodedata.normalize("NFC", text))
