"""The front end as a whole: parse, repair, segment, write out."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from utterd.errors import EmptyTextError
from utterd.text.repair import repair
from utterd.text.run import Run
from utterd.text.script import is_speakable
from utterd.text.segment import SENTENCE_PAUSE_S, ends_with_stop, segment
from utterd.text.ssml import parse_ssml

FRONT_END_VERSION = "1"
"""Part of every key: it changes when the same script would be read differently."""

SpokenForm = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenSegment:
    """One segment, as written and as spoken.

    Attributes:
        text: as it stands in the repaired text.
        spoken: numbers, dates and symbols written out.
        rate: speaking rate relative to the job's.
        gain: amplitude factor.
        pause_after_s: silence until the next segment, or until the end.
        ends_sentence: False where a sentence goes on in the next segment.
    """

    text: str
    spoken: str
    rate: float = 1.0
    gain: float = 1.0
    pause_after_s: float = 0.0
    ends_sentence: bool = True


def runs_of(*, text: str | None, ssml: str | None) -> tuple[Run, ...]:
    """The repaired runs of a script, of which one is given.

    Raises:
        InvalidSsmlError: the SSML can't be spoken.
    """
    runs = parse_ssml(ssml) if ssml is not None else (Run(text=text or ""),)
    return tuple(replace(run, text=repair(run.text)) for run in runs)


def read(
    runs: Iterable[Run], *, max_chars: int, spoken_form: SpokenForm
) -> tuple[SpokenSegment, ...]:
    """Turn a script into what an engine speaks.

    Args:
        runs: from `runs_of`.
        max_chars: the longest segment that the engine takes.
        spoken_form: how the engine's language writes things out.

    Returns:
        At least one segment, each with something to say.

    Raises:
        EmptyTextError: there is no letter and no digit in the script.
    """
    segments: list[SpokenSegment] = []
    asked_pause_s = 0.0
    for run in runs:
        spoken = list(_read_run(run, max_chars, spoken_form))
        segments += spoken
        if not segments:
            continue
        # A run with nothing to say leaves its pause to the one before.
        asked_pause_s = run.pause_after_s + (0.0 if spoken else asked_pause_s)
        last = segments[-1]
        segments[-1] = replace(
            last,
            pause_after_s=max(last.pause_after_s, asked_pause_s),
            ends_sentence=last.ends_sentence or run.ends_sentence,
        )
    if not segments:
        raise EmptyTextError("the text has nothing to say: send at least one letter or digit")
    # Nothing follows the last segment but the pause that was asked for.
    return (*segments[:-1], replace(segments[-1], pause_after_s=asked_pause_s))


def _read_run(run: Run, max_chars: int, spoken_form: SpokenForm) -> Iterator[SpokenSegment]:
    pieces = [piece for piece in segment(run.text, max_chars=max_chars) if is_speakable(piece.text)]
    for number, piece in enumerate(pieces, start=1):
        spoken = spoken_form(piece.text)
        if not is_speakable(spoken):
            continue
        # A run can end in mid-sentence, where the markup changes.
        stops = number < len(pieces) or ends_with_stop(piece.text)
        yield SpokenSegment(
            text=piece.text,
            spoken=spoken,
            rate=run.rate,
            gain=run.gain,
            pause_after_s=piece.pause_after_s if number < len(pieces) else SENTENCE_PAUSE_S * stops,
            ends_sentence=piece.ends_sentence and stops,
        )
