"""From clips to one file."""

import json

import numpy as np
import pytest

from utterd.audio.join import Clip, Span
from utterd.errors import InvalidAudioError
from utterd.jobs.finish import finish, sentence_marks
from utterd.jobs.speak import Speech
from utterd.testing.engine import tone
from utterd.text.front_end import SpokenSegment
from utterd_schemas.job import Job

SPEECH = Speech(clips=(Clip(tone(1.0), 0.35), Clip(tone(1.5), 0.7)), reasons=())


def segment(text, *, ends_sentence=True):
    return SpokenSegment(text=text, spoken=text, pause_after_s=0.0, ends_sentence=ends_sentence)


def test_clips_become_one_file_with_marks(plan):
    """The file decodes to all clips and pauses, and each sentence has its time in it."""
    finished = finish(SPEECH, plan)
    marks = json.loads(finished.marks)
    assert [mark["text"] for mark in marks] == ["Hello there.", "How are you?"]
    assert all(mark["type"] == "sentence" for mark in marks)
    assert marks[0]["start_s"] < marks[0]["end_s"] < marks[1]["start_s"] < marks[1]["end_s"]
    assert marks[1]["end_s"] <= finished.encoded.duration_s
    assert finished.encoded.duration_s == pytest.approx(1.0 + 0.35 + 1.5 + 0.7, abs=0.2)


def test_marks_are_made_on_demand_only(planner):
    """A job that wants none gets none."""
    plan = planner.plan(Job(text="Hello there. How are you?"))
    assert finish(SPEECH, plan).marks is None


def test_equal_clips_have_equal_samples(plan):
    """The digest of the samples is that of the sound, whatever the container adds to it."""
    assert finish(SPEECH, plan).pcm_sha256 == finish(SPEECH, plan).pcm_sha256


def test_what_nobody_hears_is_no_file(plan):
    """Silence alone is the engine's fault."""
    silence = np.zeros(24_000, np.float32)
    with pytest.raises(InvalidAudioError):
        finish(Speech(clips=(Clip(silence, 0.0),) * 2, reasons=("silent",)), plan)


def test_the_pieces_of_a_long_sentence_have_one_mark():
    """It runs from the first piece's start to the last one's end."""
    marks = json.loads(
        sentence_marks(
            (
                segment("One,", ends_sentence=False),
                segment("two,", ends_sentence=False),
                segment("three."),
                segment("Über."),
            ),
            (Span(0.0, 1.0), Span(1.5, 2.0), Span(2.5, 3.0), Span(4.0, 5.0)),
        )
    )
    assert marks == [
        {"type": "sentence", "start_s": 0.0, "end_s": 3.0, "text": "One, two, three."},
        {"type": "sentence", "start_s": 4.0, "end_s": 5.0, "text": "Über."},
    ]
