"""Packs sentences into segments of the length that a language model of speech does best.

The rule is that of `split_paragraph` in CosyVoice's front end: sentences are added to a segment
until the next one would make it longer than `max_units`, provided that it is longer than
`min_units`; a remainder shorter than `merge_below` goes with the segment before. Two things are
different here. A sentence longer than `max_units` is cut into parts of at most that, where the
original lets it grow. And the first segment of a text ends as soon as it is not short, so that it
can be heard early.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from unicodedata import east_asian_width

from utterd.text.reading import Reading, SpokenForm
from utterd.text.script import is_speakable
from utterd.text.segment import (
    CLAUSE_PAUSE_S,
    PARAGRAPH_PAUSE_S,
    SENTENCE_PAUSE_S,
    ends_clause,
    split_long,
    split_sentences,
)

# Text of more characters a unit is cut before it is looked at closely.
_UNIT_CHARS = 8

Measure = Callable[[str], int]
"""The length of a spoken form, in units of the engine's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSize:
    """How long segments should be, in an engine's units.

    Attributes:
        max_units: no single sentence is longer, and a segment that is more than `min_units` long
            does not grow beyond.
        min_units: shorter segments take in the next sentence, whatever its length.
        merge_below: shorter ones are not left alone.
    """

    max_units: int
    min_units: int
    merge_below: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """A sentence or a part of one."""

    text: str
    spoken: str
    ends_sentence: bool = True

    def followed_by(self, other: "_Piece") -> "_Piece":
        return _Piece(
            _join(self.text, other.text), _join(self.spoken, other.spoken), other.ends_sentence
        )


def read_packed(
    text: str, *, size: SegmentSize, measure: Measure, spoken_form: SpokenForm
) -> Iterator[Reading]:
    """Read a text in segments of several sentences, which never reach over a line's end.

    Args:
        text: repaired text.
        size: of the segments.
        measure: of a spoken form's length.
        spoken_form: how the engine writes out one sentence.

    Yields:
        Readings in order. Joined, they hold every sentence of the text that can be spoken.
    """
    is_first = True
    for paragraph in filter(is_speakable, text.split("\n")):
        pieces = _pieces(paragraph, size.max_units, measure, spoken_form)
        *heads, last = _pack(pieces, size, measure, is_first=is_first)
        for head in heads:
            yield Reading(head.text, head.spoken, _pause_after(head), head.ends_sentence)
        yield Reading(last.text, last.spoken, PARAGRAPH_PAUSE_S)
        is_first = False


def _pieces(
    paragraph: str, max_units: int, measure: Measure, spoken_form: SpokenForm
) -> Iterator[_Piece]:
    for sentence in filter(is_speakable, split_sentences(paragraph)):
        # Writing out a sentence of thousands of numbers takes seconds, and would be done again for
        # each of its parts.
        *heads, tail = filter(is_speakable, split_long(sentence, _UNIT_CHARS * max_units))
        for text in (*heads, tail):
            whole = _Piece(text, spoken_form(text), text is tail)
            units = measure(whole.spoken)
            if units <= max_units:
                yield whole
                continue
            *inner, last = _cut(text, units, max_units, measure, spoken_form)
            yield from inner
            yield _Piece(last.text, last.spoken, text is tail)


def _cut(
    sentence: str, units: int, max_units: int, measure: Measure, spoken_form: SpokenForm
) -> Iterator[_Piece]:
    """Cut a long sentence evenly: at clauses, at spaces, or anywhere."""
    parts = -(-units // max_units)
    size = max(1, -(-len(sentence) // parts))
    *heads, tail = filter(is_speakable, split_long(sentence, size))
    for text in (*heads, tail):
        spoken = spoken_form(text)
        part_units = measure(spoken)
        if part_units > max_units and 1 < len(text) < len(sentence):
            *inner, last = _cut(text, part_units, max_units, measure, spoken_form)
            yield from inner
            yield _Piece(last.text, last.spoken, text is tail)
        else:
            yield _Piece(text, spoken, text is tail)


def _pack(
    pieces: Iterator[_Piece], size: SegmentSize, measure: Measure, *, is_first: bool
) -> list[_Piece]:
    packed: list[_Piece] = []
    current: _Piece | None = None
    for piece in pieces:
        if current is None:
            current = piece
            continue
        longer = current.followed_by(piece)
        units = measure(current.spoken)
        is_early = is_first and not packed and units >= size.merge_below
        is_enough = units > size.min_units or not current.ends_sentence
        if is_early or (is_enough and measure(longer.spoken) > size.max_units):
            packed.append(current)
            current = piece
        else:
            current = longer
    if current is not None:
        if packed and measure(current.spoken) < size.merge_below:
            current = packed.pop().followed_by(current)
        packed.append(current)
    return packed


def _pause_after(piece: _Piece) -> float:
    if piece.ends_sentence:
        return SENTENCE_PAUSE_S
    return CLAUSE_PAUSE_S if ends_clause(piece.text) else 0.0


def _join(before: str, after: str) -> str:
    """Two sentences of one line, with a space where the script has one."""
    if not before or not after:
        return before + after
    wide = _is_wide(before[-1]) or (_is_wide(after[0]) and not "\uac00" <= after[0] <= "\ud7a3")
    return f"{before}{'' if wide else ' '}{after}"


def _is_wide(char: str) -> bool:
    return east_asian_width(char) in "WF"
