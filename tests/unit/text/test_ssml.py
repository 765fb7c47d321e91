"""SSML: what is spoken, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.errors import InvalidSsmlError
from utterd.text.run import Run
from utterd.text.segment import PARAGRAPH_PAUSE_S, SENTENCE_PAUSE_S
from utterd.text.ssml import MAX_DEPTH, parse_ssml


def speak(inside: str) -> tuple[Run, ...]:
    return parse_ssml(f"<speak>{inside}</speak>")


def test_plain_words_are_one_run() -> None:
    """A document without markup is spoken as its text, entities resolved."""
    assert speak("Salt &amp; pepper") == (Run(text="Salt & pepper"),)


def test_namespace_is_accepted() -> None:
    """The namespace of SSML makes no difference."""
    document = '<speak version="1.1" xmlns="http://www.w3.org/2001/10/synthesis">Hi</speak>'
    assert parse_ssml(document) == (Run(text="Hi"),)


def test_sentences_and_paragraphs_pause() -> None:
    """`s` and `p` end a sentence and ask for their pauses, without any punctuation."""
    first, second, third = speak("<p><s>One</s><s>two</s></p>three")
    assert (first.pause_after_s, first.ends_sentence) == (SENTENCE_PAUSE_S, True)
    assert (second.pause_after_s, second.ends_sentence) == (PARAGRAPH_PAUSE_S, True)
    assert (third.pause_after_s, third.ends_sentence) == (0.0, True)


@pytest.mark.parametrize(
    ("markup", "pause_s"),
    [
        ('<break time="250ms"/>', 0.25),
        ('<break time="2s"/>', 2.0),
        ('<break strength="none"/>', 0.0),
        ("<break/>", SENTENCE_PAUSE_S),
    ],
)
def test_break_is_a_pause_inside_a_sentence(markup: str, pause_s: float) -> None:
    """A break sets the silence after the words before it and ends no sentence."""
    before, after = speak(f"wait{markup}go")
    assert before == Run(text="wait", pause_after_s=pause_s, ends_sentence=False)
    assert after.text == "go"


def test_prosody_nests() -> None:
    """Rates multiply and volumes add up, and both end with their element."""
    runs = speak('<prosody rate="80%">a<prosody rate="150%" volume="-6dB">b</prosody></prosody>c')
    assert [round(run.rate, 3) for run in runs] == [0.8, 1.2, 1.0]
    assert [round(run.gain, 3) for run in runs] == [1.0, 0.501, 1.0]


def test_sub_speaks_the_alias() -> None:
    """`sub` replaces what is written."""
    assert speak('<sub alias="World Wide Web">WWW</sub>') == (Run(text="World Wide Web"),)


def test_say_as_spells() -> None:
    """Characters are spoken one by one."""
    (run,) = speak('<say-as interpret-as="characters">AB12</say-as>')
    assert run.text.split() == ["A", "B", "1", "2"]


def test_tags_inside_text_are_no_markup() -> None:
    """Escaped angle brackets are words."""
    assert speak("a &lt;break/&gt; b") == (Run(text="a <break/> b"),)


@pytest.mark.parametrize(
    "document",
    [
        "",
        "no markup",
        "<speak>",
        "<speak>Salt & pepper</speak>",
        "<p>not speak</p>",
        '<!DOCTYPE s [<!ENTITY a "aaaa">]><speak>&a;</speak>',
        '<!DOCTYPE s [<!ENTITY a SYSTEM "file:///etc/passwd">]><speak>&a;</speak>',
        '<speak><audio src="x"/></speak>',
        '<speak><break time="11s"/></speak>',
        '<speak><break time="-1s"/></speak>',
        '<speak><break strength="huge"/></speak>',
        '<speak><prosody rate="0%">x</prosody></speak>',
        '<speak><prosody rate="900%">x</prosody></speak>',
        '<speak><prosody pitch="high">x</prosody></speak>',
        '<speak><prosody volume="+40dB">x</prosody></speak>',
        "<speak><sub>x</sub></speak>",
        '<speak><say-as interpret-as="riddle">x</say-as></speak>',
        "<speak>" + "<p>" * MAX_DEPTH + "deep" + "</p>" * MAX_DEPTH + "</speak>",
        "<speak>" + "<p>" * 100_000 + "</p>" * 100_000 + "</speak>",
        "<speak>\x00</speak>",
        "<speak>\ud800</speak>",
    ],
)
def test_refusals(document: str) -> None:
    """What can't be spoken is refused with one error, whatever it tries."""
    with pytest.raises(InvalidSsmlError):
        parse_ssml(document)


@given(st.text(st.characters(codec="utf-8", exclude_characters="<&", exclude_categories=["C"])))
def test_no_character_is_lost(words: str) -> None:
    """Text without markup comes through, white space aside."""
    spoken = "".join(run.text for run in speak(words))
    assert "".join(spoken.split()) == "".join(words.split())
