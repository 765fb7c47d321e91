"""A stretch of a script that is spoken in one manner."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Plain text, and how it is to be spoken.

    Attributes:
        text: as the publisher wrote it.
        rate: speaking rate relative to the job's.
        gain: amplitude factor.
        pause_after_s: silence that must follow, at the least.
        ends_sentence: whether a sentence ends here, whatever its last character is.
    """

    text: str
    rate: float = 1.0
    gain: float = 1.0
    pause_after_s: float = 0.0
    ends_sentence: bool = True
