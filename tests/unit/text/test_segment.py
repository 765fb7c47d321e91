"""Segmentation."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.text.repair import repair
from utterd.text.script import is_speakable
from utterd.text.segment import (
    CLAUSE_PAUSE_S,
    PARAGRAPH_PAUSE_S,
    SENTENCE_PAUSE_S,
    Segment,
    segment,
    split_long,
    split_sentences,
)


def sentences(text: str) -> list[str]:
    return list(split_sentences(text))


@pytest.mark.parametrize(
    "expected",
    [
        ["One.", "Two!", "Three?", "Four…", "Five"],
        ["“Go!”", "She went.", "(Really.)", "Then left."],
        ["Really?!", "Yes..."],
        ["Dr. Smith met Mrs. Jones at St. Mary's."],
        ["J. R. R. Tolkien and J.R.R. Tolkien are one.", "So is the U.S. Army."],
        ["Pi is 3.14159 and v1.2.3 is out."],
        ["See no. 5, No. 6, fig. 2, Vol. 3 and p. 4."],
        ["No.", "I won't."],
        ["“Stop!” he said.", "She did."],
        ["Wait... what is this?"],
        ["We met on Jan. 5, i.e. in winter."],
        ["Visit example.com.", "It is free."],
    ],
)
def test_splits_english_where_a_reader_pauses(expected: list[str]):
    """Stops end sentences, but not in decimals and abbreviations, nor before small letters."""
    assert sentences(" ".join(expected)) == expected


@pytest.mark.parametrize(
    "expected",
    [
        ["你好。", "今天天气好吗？", "好！", "走吧"],
        ["他说：「走。」", "她走了。"],
        ["什么！？", "真的。。。", "是"],
        ["今日は。", "『はい！』", "彼は言った。"],
        ["我有 3.5 元；", "你呢？"],
        ["我用iPhone。", "很好"],
    ],
)
def test_splits_chinese_and_japanese_without_spaces(expected: list[str]):
    """A wide stop ends a sentence wherever it stands, with its closing brackets."""
    assert sentences("".join(expected)) == expected


@pytest.mark.parametrize(
    "expected",
    [
        ["你好!", "再见?", "真的.", "走吧"],
        ["はい.", "そうです!", "では"],
        ["OK!", "好"],
        ["等等...我来了!", "好"],
        ["U.S.军队有3.5万人.", "是吗"],
        ["他说“走!”", "她走了"],
    ],
)
def test_a_narrow_stop_before_a_wide_letter_ends_a_sentence(expected: list[str]):
    """Chinese and Japanese writers type narrow stops too, and no space after them."""
    assert sentences("".join(expected)) == expected


def test_splits_korean_like_english():
    """Korean has spaces between sentences."""
    expected = ["안녕하세요.", "오늘 날씨가 좋네요!", "갈까요?"]
    assert sentences(" ".join(expected)) == expected


def test_a_text_without_a_stop_is_one_segment():
    """A missing full stop is no fault (T-18)."""
    assert segment("今天下午三点开会", max_chars=100) == [
        Segment("今天下午三点开会", PARAGRAPH_PAUSE_S)
    ]


@pytest.mark.parametrize("text", ["", " \t\r\n　  ", "\n\n"])
def test_white_space_is_no_segment(text: str):
    """Nothing to say gives nothing to speak (T-47)."""
    assert segment(repair(text), max_chars=100) == []


def test_pauses_tell_sentences_from_paragraphs():
    """A paragraph's end is the longer pause, however many line breaks it has."""
    assert segment("One. Two.\n\n\nThree.", max_chars=100) == [
        Segment("One.", SENTENCE_PAUSE_S),
        Segment("Two.", PARAGRAPH_PAUSE_S),
        Segment("Three.", PARAGRAPH_PAUSE_S),
    ]


def test_a_long_sentence_is_cut_at_a_clause():
    """The cut falls behind a comma, which keeps its short pause."""
    assert segment("When it rains hard, we all stay in.", max_chars=20) == [
        Segment("When it rains hard,", CLAUSE_PAUSE_S, ends_sentence=False),
        Segment("we all stay in.", PARAGRAPH_PAUSE_S),
    ]


def test_a_cut_between_words_makes_no_pause():
    """A comma early in a piece is none at its end."""
    assert segment("Oh, this one goes on and on", max_chars=20) == [
        Segment("Oh, this one goes on", 0.0, ends_sentence=False),
        Segment("and on", PARAGRAPH_PAUSE_S),
    ]


def test_a_long_text_in_small_letters_is_cut_at_its_stops():
    """Stops that were not trusted to end a sentence are still the best place for a cut."""
    assert split_long("this is one. that is two. here is three.", 28) == [
        "this is one. that is two.",
        "here is three.",
    ]


def test_a_cut_leaves_accents_with_their_letters():
    """A piece never starts with a combining mark or a skin tone."""
    assert split_long("x" * 9 + "q\u0302" * 5, 10) == ["x" * 9, "q\u0302" * 5]
    assert split_long("👍🏽" * 3, 5) == ["👍🏽" * 2, "👍🏽"]


def test_a_heap_of_accents_is_cut_anyway():
    """Nothing is longer than the engine's limit."""
    assert split_long("x" + "\u0302" * 25, 10) == ["x" + "\u0302" * 9, "\u0302" * 10, "\u0302" * 6]


def test_long_chinese_without_punctuation_is_whole():
    """All twelve repetitions and the last words are there (T-53)."""
    text = "春天来了小鸟在树上唱歌孩子们在草地上放风筝" * 12 + "最后一句是再见"
    pieces = [piece.text for piece in segment(text, max_chars=80)]
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 80


ALPHABETS = {
    "en": "abc XYZ.,;:!?\"'()-…0123 Mr. Dr. J.\n",
    "zh": "你好天气，。！？；：「」（）《》 a1.\n",
    "ja": "あいアー日本、。！？『』 \n",
    "yue": "喺佢哋嘅，。！？ ok.\n",
    "ko": "안녕하세요 .,!?()\n",
}
TEXTS = st.one_of(
    *(st.text(alphabet, max_size=300) for alphabet in ALPHABETS.values()),
    st.text(st.characters(exclude_categories=()), max_size=300),
)


def visible(text: str) -> str:
    return "".join(text.split())


@given(TEXTS, st.integers(1, 60))
def test_no_character_is_lost_and_no_limit_passed(raw: str, max_chars: int):
    """Joined segments are the text without white space; each fits the engine and is not empty."""
    text = repair(raw)
    pieces = segment(text, max_chars=max_chars)
    assert visible("".join(piece.text for piece in pieces)) == visible(text)
    assert all(0 < len(piece.text) <= max_chars for piece in pieces)
    assert all(piece.text == piece.text.strip() for piece in pieces)


@given(TEXTS)
def test_short_texts_are_cut_at_sentence_ends_alone(raw: str):
    """Where everything fits, each segment ends a sentence, and the last one a paragraph."""
    pieces = segment(repair(raw), max_chars=10_000)
    assert all(piece.ends_sentence for piece in pieces)
    assert not pieces or pieces[-1].pause_after_s == PARAGRAPH_PAUSE_S
    assert any(is_speakable(piece.text) for piece in pieces) is is_speakable(repair(raw))


@pytest.mark.parametrize(
    "unit",
    [
        ".",
        "!?",
        ".)",
        ")",
        "Mr. ",
        "A.",
        "a. ",
        "a, ",
        ",",
        ",)",
        "。",
        "」",
        "。」",
        " ",
        "x",
        "\u0302",
    ],
)
def test_hostile_repetition_takes_linear_time(unit: str):
    """A hundred thousand characters are cut in far less than quadratic time.

    Ten to the tenth steps would take minutes; the bound leaves a slow machine its time.
    """
    text = unit * (100_000 // len(unit)) + "x"
    start_s = time.process_time()
    pieces = segment(text, max_chars=240)
    assert time.process_time() - start_s < 2.0
    assert visible("".join(piece.text for piece in pieces)) == visible(text)
