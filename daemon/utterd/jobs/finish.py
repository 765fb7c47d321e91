"""From clips to a file: join, resample, encode."""

import json
from dataclasses import dataclass
from hashlib import sha256

from utterd.audio.encode import Encoded, encode
from utterd.audio.join import Span, join
from utterd.jobs.plan import Plan
from utterd.jobs.speak import Speech
from utterd.text.front_end import SpokenSegment


@dataclass(frozen=True, slots=True)
class Finished:
    """A file that is ready to be stored.

    Attributes:
        encoded: the file.
        pcm_sha256: digest of the samples that went into the encoder.
        marks: JSON with the timing marks, or None when the job wants none.
    """

    encoded: Encoded
    pcm_sha256: str
    marks: bytes | None


def finish(speech: Speech, plan: Plan) -> Finished:
    """Make one file of all clips. Slow: runs off the event loop.

    Raises:
        InvalidAudioError: the clips hold nothing that can be heard.
    """
    joined = join(speech.clips, plan.native_rate_hz)
    return Finished(
        encoded=encode(joined.pcm, plan.native_rate_hz, plan.output),
        pcm_sha256=sha256(joined.pcm.data).hexdigest(),
        marks=sentence_marks(plan.segments, joined.spans) if plan.marks_name else None,
    )


def sentence_marks(segments: tuple[SpokenSegment, ...], spans: tuple[Span, ...]) -> bytes:
    """When each sentence is heard: a JSON list of `type`, `start_s`, `end_s`, `text`."""
    marks: list[dict[str, str | float]] = []
    sentence_goes_on = False
    for segment, span in zip(segments, spans, strict=True):
        if sentence_goes_on:
            marks[-1]["text"] = f"{marks[-1]['text']} {segment.text}"
            marks[-1]["end_s"] = span.end_s
        else:
            marks.append(
                {
                    "type": "sentence",
                    "start_s": span.start_s,
                    "end_s": span.end_s,
                    "text": segment.text,
                }
            )
        sentence_goes_on = not segment.ends_sentence
    return json.dumps(marks, ensure_ascii=False).encode()
