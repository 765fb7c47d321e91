"""The front end as a whole: parse, repair, segment, write out."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from utterd.errors import EmptyTextError
from utterd.text.lexicon import Lexicon
from utterd.text.reading import Reading
from utterd.text.repair import repair
from utterd.text.run import Run
from utterd.text.script import is_speakable
from utterd.text.segment import SENTENCE_PAUSE_S, ends_with_stop
from utterd.text.ssml import parse_ssml

FRONT_END_VERSION = "2"
"""Part of every key: it changes when the same script would be read differently."""

ReadRun = Callable[[str], Iterable[Reading]]
"""An engine's way to cut repaired text and to read it aloud."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenSegment:
    """One segment, as written and as spoken.

    Attributes:
        text: as it stands in the repaired text, words of the lexicon in their spoken form.
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


def runs_of(*, text: str | None, ssml: str | None, lexicon: Lexicon) -> tuple[Run, ...]:
    """The repaired runs of a script, of which one is given, with the words of a lexicon.

    Raises:
        InvalidSsmlError: the SSML can't be spoken.
    """
    runs = parse_ssml(ssml) if ssml is not None else (Run(text=text or ""),)
    return tuple(replace(run, text=lexicon.applied(repair(run.text))) for run in runs)


def read(runs: Iterable[Run], read_run: ReadRun) -> tuple[SpokenSegment, ...]:
    """Turn a script into what an engine speaks.

    Args:
        runs: from `runs_of`.
        read_run: how the engine reads the text of one.

    Returns:
        At least one segment, each with something to say.

    Raises:
        EmptyTextError: there is no letter and no digit in the script.
    """
    segments: list[SpokenSegment] = []
    asked_pause_s = 0.0
    for run in runs:
        spoken = list(_segments(run, read_run))
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


def _segments(run: Run, read_run: ReadRun) -> Iterator[SpokenSegment]:
    readings = [
        reading
        for reading in read_run(run.text)
        if is_speakable(reading.text) and is_speakable(reading.spoken)
    ]
    for number, reading in enumerate(readings, start=1):
        # A run can end in mid-sentence, where the markup changes.
        is_last = number == len(readings)
        stops = not is_last or ends_with_stop(reading.text)
        yield SpokenSegment(
            text=reading.text,
            spoken=reading.spoken,
            rate=run.rate,
            gain=run.gain,
            pause_after_s=SENTENCE_PAUSE_S * stops if is_last else reading.pause_after_s,
            ends_sentence=reading.ends_sentence and stops,
        )
