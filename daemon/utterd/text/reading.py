"""How a text is read aloud: pieces of it, each as written and as spoken."""

from collections.abc import Callable
from dataclasses import dataclass

from utterd.text.segment import segment

SpokenForm = Callable[[str], str]
"""Writes out numbers, dates and symbols."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A piece of text that is spoken in one go.

    Attributes:
        text: as it stands in the repaired text.
        spoken: numbers, dates and symbols written out.
        pause_after_s: silence between this piece and the next.
        ends_sentence: False where a long sentence had to be cut.
    """

    text: str
    spoken: str
    pause_after_s: float
    ends_sentence: bool = True


def read_sentences(text: str, *, max_chars: int, spoken_form: SpokenForm) -> list[Reading]:
    """Read sentence by sentence, for engines that are at home in single sentences.

    Args:
        text: repaired text.
        max_chars: the longest piece that the engine takes, as written.
        spoken_form: how the engine's language writes things out.
    """
    return [
        Reading(piece.text, spoken_form(piece.text), piece.pause_after_s, piece.ends_sentence)
        for piece in segment(text, max_chars=max_chars)
    ]
