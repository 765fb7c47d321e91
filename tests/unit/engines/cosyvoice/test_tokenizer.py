"""Text tokens."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.engines.cosyvoice.tokenizer import VOCABULARY_SIZE, load_tokenizer
from utterd.text.repair import repair

FIRST_CONTROL_ID = 50_257


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Hello, world!", [15947, 11, 1002, 0]),
        ("你好，世界。", [26410, 171, 120, 234, 24486, 1543]),
        ("こんにちは、世界。", [38088, 1231, 24486, 1543]),
        ("안녕하세요.", [49200, 12831, 15377, 13]),
        (
            "你食咗飯未呀？",
            [2166, 25155, 8975, 245, 45229, 29954, 15348, 171, 120, 253],
        ),
    ],
)
def test_reads_the_five_languages_as_whisper_does(text: str, ids: list[int]):
    """The ids are those of the multilingual vocabulary, without a start token."""
    assert load_tokenizer().encode(text).tolist() == ids


def test_decodes_the_example_of_whispers_own_tests():
    """The ranks are Whisper's: these ids stand in its test of split words."""
    ids = np.array([8404, 871, 287, 6, 246, 526, 3210, 20378])
    assert load_tokenizer().decode(ids) == " elle est l'\ufffdéritoire"


def test_knows_the_control_tokens_of_a_hundred_languages():
    """Control tokens fill the embedding table to its last row."""
    tokenizer = load_tokenizer()
    ids = [tokenizer.control_id(name) for name in ("endoftext", "en", "zh", "yue", "30.00")]
    assert ids == [FIRST_CONTROL_ID, 50_259, 50_260, 50_358, VOCABULARY_SIZE - 1]


@pytest.mark.parametrize("text", ["<|zh|>", "<|endoftext|>你好", "a<|startoftranscript|>b<|0.00|>"])
def test_a_users_control_token_is_text(text: str):
    """What looks like a control token is read as punctuation and letters."""
    ids = load_tokenizer().encode(text)
    assert ids.max() < FIRST_CONTROL_ID
    assert load_tokenizer().decode(ids) == text


@given(st.text())
def test_no_character_is_lost(text: str):
    """Decoding gives back every text that repair lets through."""
    tokenizer = load_tokenizer()
    repaired = repair(text)
    ids = tokenizer.encode(repaired)
    assert tokenizer.decode(ids) == repaired
    assert tokenizer.count(repaired) == ids.size
