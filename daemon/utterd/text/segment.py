"""Cuts a text into segments that an engine can speak, without ever losing a character."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

SENTENCE_PAUSE_S = 0.35
PARAGRAPH_PAUSE_S = 0.7
CLAUSE_PAUSE_S = 0.15

_CLOSERS = "\"'”’»)]）］」』】〉》"
_CLOSER = f"[{re.escape(_CLOSERS)}]"
_CLAUSE_MARKS = ",;:—–.!?…，、；："
# Letters that follow a stop without a space.
_UNSPACED_LETTER = "[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
# Runs are matched possessively and from their first character only: without both, a long run
# of stops or brackets costs quadratic time.
_SENTENCE_END = re.compile(
    rf"(?:(?<![.!?…])(?P<latin>[.!?…]++){_CLOSER}*+(?=\s)"
    # Two full stops or more are a pause for thought.
    rf"|(?<![.!?…])(?P<unspaced>\.(?![.!?…])|[!?]++){_CLOSER}*+(?={_UNSPACED_LETTER})"
    rf"|[。！？；｡](?:[。！？；｡!?…]|{_CLOSER})*+)\s*+"
)
# Latin stops are here for sentences that were not split, since a small letter follows.
_CLAUSE_END = re.compile(
    rf"(?:(?<![,;:—–.!?…])[,;:—–.!?…]++{_CLOSER}*+(?=\s)|[，、；：]++{_CLOSER}*+)\s*+"
)

_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"“'‘])"
    r"(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Gen|Col|Capt|Lt|Sgt|Rev|Hon|vs|approx|dept|est|e\.g|i\.e|"
    r"Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|(?:[A-Z]\.)*[A-Z])\.$"
)
# Words like these are short for something only before a number: "No." is also an answer.
_ABBREVIATION_BEFORE_NUMBER = re.compile(r"(?:^|[\s(\[\"“'‘])(?:[Nn]os?|[Ff]ig|[Vv]ol|pp?)\.$")
# Longer than any abbreviation, with what stands before it.
_ABBREVIATION_WINDOW = 16


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of text that is spoken in one go.

    Attributes:
        text: what to speak, without surrounding white space.
        pause_after_s: silence between this segment and the next.
        ends_sentence: False where a long sentence had to be cut.
    """

    text: str
    pause_after_s: float
    ends_sentence: bool = True


def segment(text: str, *, max_chars: int) -> list[Segment]:
    """Split repaired text at paragraph and sentence ends, and longer runs where it hurts least.

    Args:
        text: repaired text.
        max_chars: the longest segment that the engine takes.

    Returns:
        Segments in reading order. Joined, they hold every character of the text but white space.
    """
    segments: list[Segment] = []
    for paragraph in filter(str.strip, text.split("\n")):
        sentences = list(split_sentences(paragraph))
        for position, sentence in enumerate(sentences, start=1):
            *heads, tail = split_long(sentence, max_chars)
            segments.extend(
                Segment(
                    piece,
                    pause_after_s=CLAUSE_PAUSE_S if ends_clause(piece) else 0.0,
                    ends_sentence=False,
                )
                for piece in heads
            )
            last = position == len(sentences)
            segments.append(Segment(tail, PARAGRAPH_PAUSE_S if last else SENTENCE_PAUSE_S))
    return segments


def ends_with_stop(text: str) -> bool:
    """Whether what follows a text is a new sentence."""
    return len(list(split_sentences(f"{text} X"))) > len(list(split_sentences(text)))


def split_sentences(paragraph: str) -> Iterator[str]:
    """Sentences of one paragraph, without surrounding white space.

    A stop of Latin script ends none before a small letter, nor does a full stop after an
    abbreviation or an initial. Before a Chinese or Japanese letter it needs no space.
    """
    start = 0
    for end in _SENTENCE_END.finditer(paragraph):
        following = paragraph[end.end() : end.end() + 1]
        if not following:
            break
        if end["latin"] and (following.islower() or _abbreviates(paragraph, end, "latin")):
            continue
        if end["unspaced"] and _abbreviates(paragraph, end, "unspaced"):
            continue
        yield paragraph[start : end.end()].strip()
        start = end.end()
    if rest := paragraph[start:].strip():
        yield rest


def _abbreviates(paragraph: str, end: re.Match[str], mark: str) -> bool:
    stop = end.end(mark)
    following = paragraph[end.end() : end.end() + 1]
    word = paragraph[max(0, stop - _ABBREVIATION_WINDOW) : stop]
    return bool(
        _ABBREVIATION.search(word)
        or (following.isdigit() and _ABBREVIATION_BEFORE_NUMBER.search(word))
    )


def split_long(sentence: str, max_chars: int) -> list[str]:
    """Cut a sentence into pieces of at most `max_chars`: at a clause, a space, or anywhere."""
    pieces = []
    rest = sentence
    while len(rest) > max_chars:
        cut = _last_cut(rest, max_chars)
        pieces.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    pieces.append(rest)
    return pieces


def _last_cut(text: str, max_chars: int) -> int:
    """Where to cut, counted from the start: above 0 and at most `max_chars`."""
    window = text[: max_chars + 1]
    clauses = [end.end() for end in _CLAUSE_END.finditer(window) if end.end() <= max_chars]
    # A cut in the first half would make many short pieces, each with an intonation of its own.
    if clauses and clauses[-1] >= max_chars // 2:
        return clauses[-1]
    space = window.rfind(" ")
    if space > 0:
        return space
    cut = max_chars
    while cut > max(1, max_chars // 2) and _continues_grapheme(text[cut]):
        cut -= 1
    # A heap of accents longer than that is no letter of any language.
    return max_chars if _continues_grapheme(text[cut]) else cut


def ends_clause(piece: str) -> bool:
    """Whether a piece of a sentence ends where a reader pauses."""
    return piece.rstrip(_CLOSERS).endswith(tuple(_CLAUSE_MARKS))


def _continues_grapheme(char: str) -> bool:
    """Whether a character belongs to the one before it: an accent, a sign, a skin tone."""
    return unicodedata.category(char)[0] == "M" or "\U0001f3fb" <= char <= "\U0001f3ff"
