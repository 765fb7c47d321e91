"""From a script to spoken segments: which pauses and sentence ends survive the markup."""

from functools import partial

import pytest

from utterd.errors import EmptyTextError
from utterd.text.front_end import read, runs_of
from utterd.text.lexicon import Lexicon
from utterd.text.reading import read_sentences
from utterd.text.segment import SENTENCE_PAUSE_S


def segments(text=None, ssml=None):
    runs = runs_of(text=text, ssml=ssml and f"<speak>{ssml}</speak>", lexicon=Lexicon())
    return read(runs, partial(read_sentences, max_chars=200, spoken_form=str))


def outline(ssml):
    return [(one.text, round(one.pause_after_s, 3)) for one in segments(ssml=ssml)]


def test_nothing_follows_the_last_segment():
    """A file ends with its last word."""
    first, last = segments("One. Two.")
    assert (first.pause_after_s, last.pause_after_s) == (SENTENCE_PAUSE_S, 0.0)


def test_white_space_between_elements_swallows_no_break():
    """Markup that is laid out over lines sounds like markup on one line."""
    assert outline('\n<p>A.</p>\n<break time="3s"/>\n<p>B.</p>\n') == [("A.", 3.7), ("B.", 0.7)]


def test_what_has_nothing_to_say_leaves_its_pause():
    """A dash between two breaks does not take them along."""
    spoken = outline('Hello<break time="200ms"/>-<break time="3s"/>world')
    assert spoken == [("Hello", 3.2), ("world", 0.0)]


def test_breaks_add_up():
    """Two breaks of a second are two seconds."""
    assert outline('a<break time="1s"/><break time="1s"/>b')[0] == ("a", 2.0)


def test_a_sentence_that_ends_before_a_change_of_manner_has_its_pause():
    """Three sentences are three, whatever is soft among them."""
    ssml = 'First one. <prosody volume="soft">Second one.</prosody> Third one.'
    assert outline(ssml) == [
        ("First one.", SENTENCE_PAUSE_S),
        ("Second one.", SENTENCE_PAUSE_S),
        ("Third one.", 0.0),
    ]
    assert all(one.ends_sentence for one in segments(ssml=ssml))


def test_a_sentence_goes_on_over_a_change_of_manner():
    """A word in another manner is no sentence."""
    spoken = segments(ssml='Say <prosody rate="slow">slowly</prosody> now.')
    assert [one.ends_sentence for one in spoken] == [False, False, True]
    assert [one.pause_after_s for one in spoken] == [0.0, 0.0, 0.0]


def test_spelled_words_lose_the_line_breaks_of_the_markup():
    """They are no paragraphs."""
    assert outline('<say-as interpret-as="digits">\n 12\n</say-as>') == [("1 2", 0.0)]


@pytest.mark.parametrize("script", [{"text": "…!?"}, {"ssml": '<break time="2s"/>'}])
def test_a_script_with_nothing_to_say_is_refused(script):
    """Silence is no answer."""
    with pytest.raises(EmptyTextError):
        segments(**script)
