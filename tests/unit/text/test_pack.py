"""Packing sentences into segments."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.text.pack import SegmentSize, read_packed
from utterd.text.reading import Reading
from utterd.text.repair import repair
from utterd.text.script import is_speakable
from utterd.text.segment import CLAUSE_PAUSE_S, PARAGRAPH_PAUSE_S, SENTENCE_PAUSE_S

SIZE = SegmentSize(max_units=80, min_units=60, merge_below=20)


def packed(text: str) -> list[Reading]:
    """Readings of a text whose units are characters."""
    return list(read_packed(text, size=SIZE, measure=len, spoken_form=str))


def sentence(units: int, stop: str = "。") -> str:
    return "字" * (units - 1) + stop


def lengths(*sentences: int) -> list[int]:
    """Lengths of the segments of some sentences, of which the first has 20 characters."""
    readings = packed("".join(map(sentence, (20, *sentences))))
    return [len(reading.spoken) for reading in readings[1:]]


@pytest.mark.parametrize(
    ("sentences", "segments"),
    [
        ((30, 30, 20, 30), [80, 30]),
        ((30, 30, 30, 30), [90, 30]),
        ((70, 30), [70, 30]),
        ((70, 10, 40), [80, 40]),
        ((70, 19), [89]),
        ((70, 20), [70, 20]),
    ],
)
def test_segments_follow_the_rule_of_80_60_and_20(sentences: tuple[int, ...], segments: list[int]):
    """A segment grows to 80, beyond that from at most 60, and 19 are not left alone."""
    assert lengths(*sentences) == segments


def test_a_short_rest_of_two_goes_with_what_is_before():
    """Two segments can become one, when the second is too short to stand alone."""
    assert [len(reading.text) for reading in packed(sentence(70) + sentence(15))] == [85]


def test_the_first_segment_is_short():
    """It can be heard while the rest is still being spoken."""
    readings = packed(sentence(12) + sentence(12) + sentence(50) + sentence(10))
    assert [len(reading.text) for reading in readings] == [24, 60]


def test_a_line_ends_a_segment():
    """Lines are spoken apart, with a paragraph's pause."""
    readings = packed("短。\n也短。")
    assert readings == [
        Reading("短。", "短。", PARAGRAPH_PAUSE_S),
        Reading("也短。", "也短。", PARAGRAPH_PAUSE_S),
    ]


def test_sentences_are_joined_as_they_were_written():
    """Latin and Korean sentences have a space between them, Chinese ones do not."""
    assert packed("One. Two.")[0].spoken == "One. Two."
    assert packed("안녕. 응.")[0].spoken == "안녕. 응."
    assert packed("一。二。")[0].spoken == "一。二。"


def test_a_long_sentence_is_cut_evenly_and_at_clauses():
    """No part is a crumb, and only the last one ends the sentence."""
    text = "，".join(["字" * 49] * 4) + "。"
    first, second, *_, last = packed(text)
    assert [len(reading.text) for reading in packed(text)] == [50, 50, 50, 50]
    assert (first.ends_sentence, first.pause_after_s) == (False, CLAUSE_PAUSE_S)
    assert (second.ends_sentence, last.ends_sentence) == (False, True)


def test_numbers_count_as_they_are_spoken():
    """A sentence that is short to read and long to say is cut."""
    readings = list(
        read_packed(
            "1 2 3 4 5 6 7 8 9 10 11 12.",
            size=SIZE,
            measure=len,
            spoken_form=lambda text: text.replace(" ", " seven hundred "),
        )
    )
    assert len(readings) > 1
    assert all(len(reading.spoken) <= 80 for reading in readings)


def test_a_run_without_punctuation_loses_nothing():
    """Twelve verses without a stop are cut and end with their last word (T-53)."""
    text = "春天来了小鸟在树上唱歌孩子们在草地上放风筝" * 12 + "最后一句是再见"
    readings = packed(text)
    assert "".join(reading.spoken for reading in readings) == text
    assert all(len(reading.spoken) <= 80 for reading in readings)
    assert readings[-1].spoken.endswith("再见")


@given(st.text(alphabet="字a .。！?\n,，1“”가 ", max_size=400) | st.text(max_size=200))
def test_no_letter_is_lost(text: str):
    """Joined, the readings hold every letter and digit, in order, however a text is written."""
    repaired = repair(text)
    readings = packed(repaired)

    def letters(text: str) -> str:
        return "".join(char for char in text if is_speakable(char))

    assert letters("".join(reading.spoken for reading in readings)) == letters(repaired)
    assert all(len(reading.spoken) <= 2 * 80 for reading in readings)


@given(st.lists(st.integers(2, 80), min_size=1, max_size=30))
def test_only_a_first_segment_or_a_line_is_short(units: list[int]):
    """Within a line, two short segments never follow each other."""
    readings = packed("".join(map(sentence, units)))
    assert all(
        len(before.spoken) > 60 or len(after.spoken) >= 20
        for before, after in pairwise(readings[1:])
    )
    assert {reading.pause_after_s for reading in readings[:-1]} <= {SENTENCE_PAUSE_S}


@pytest.mark.parametrize("unit", ["字", "a", "a ", "!", "1", "字。", "“"])
def test_long_texts_take_linear_time(unit: str):
    """No text of the largest size holds the daemon up."""
    started = time.monotonic()
    packed(unit * (10_000 // len(unit)))
    assert time.monotonic() - started < 2.0
