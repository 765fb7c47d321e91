"""Sequences that are decoded side by side against the same sequences alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from support.cosyvoice import REFERENCE
from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.model.cache import KeyValueCache
from utterd.engines.cosyvoice.model.language_model import SpeechLM
from utterd.engines.cosyvoice.model.text_encoder import TextEncoder
from utterd.errors import EngineFailedError

# In float32, a product of one row and one of several add up in another order.
ROUNDING = 1e-5
# In int8, a difference in the last bit can move a number to the next of its 256 levels.
INT8_ROUNDING = 1e-2
ROWS = 4
CAPACITY = 40

Segment = tuple[NDArray[np.float32], NDArray[np.int64]]
"""The rows of a prompt, and the tokens that follow it."""


def alone(model: SpeechLM, segment: Segment) -> NDArray[np.float32]:
    prompt, tokens = segment
    cache = model.new_cache(rows=1, capacity=len(prompt) + len(tokens))
    logits = [model.join(cache, 0, prompt)]
    logits.extend(model.step(cache, [0], tokens[[step]])[0] for step in range(len(tokens)))
    return np.stack(logits)


def together(
    model: SpeechLM, cache: KeyValueCache, arrivals: list[tuple[int, Segment]]
) -> list[NDArray[np.float32]]:
    """Each segment joins at its step or, if no row is free, at the next one that is."""
    waiting = sorted(range(len(arrivals)), key=lambda number: arrivals[number][0])
    logits: list[list[NDArray[np.float32]]] = [[] for _ in arrivals]
    at_row: dict[int, int] = {}
    clock = 0
    while waiting or at_row:
        free = [row for row in range(ROWS) if row not in at_row]
        while free and waiting and arrivals[waiting[0]][0] <= clock:
            number, row = waiting.pop(0), free.pop()
            logits[number].append(model.join(cache, row, arrivals[number][1][0]))
            at_row[row] = number
        for row, number in list(at_row.items()):
            if len(logits[number]) > len(arrivals[number][1][1]):
                model.leave(cache, row)
                del at_row[row]
        if at_row:
            rows = sorted(at_row, key=at_row.__getitem__)
            numbers = [at_row[row] for row in rows]
            tokens = [arrivals[number][1][1][len(logits[number]) - 1] for number in numbers]
            for number, found in zip(
                numbers, model.step(cache, rows, np.array(tokens)), strict=True
            ):
                logits[number].append(found)
        clock += 1
    return [np.stack(found) for found in logits]


@pytest.fixture(scope="module")
def model(other: Bundle) -> SpeechLM:
    return SpeechLM(other)


@pytest.fixture(scope="module")
def int8_model(tiny_int8: Bundle) -> SpeechLM:
    return SpeechLM(tiny_int8)


def segments(width: int) -> st.SearchStrategy[list[tuple[int, Segment]]]:
    def make(seed: int, prompt: int, tokens: int) -> Segment:
        random = np.random.default_rng(seed)
        rows = random.standard_normal((prompt, width), dtype=np.float32)
        return rows, random.integers(0, 61, tokens)

    segment = st.builds(make, st.integers(0, 2**32), st.integers(1, 24), st.integers(0, 16))
    return st.lists(st.tuples(st.integers(0, 30), segment), min_size=1, max_size=7)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_ragged_batch_of_the_reference(tiny: Bundle, tiny_int8: Bundle, precision: str):
    """Two prompts of 20 and 9 text tokens give the same logits side by side as alone."""
    bundle = tiny if precision == "float32" else tiny_int8
    encoder, model = TextEncoder(bundle), SpeechLM(bundle)
    with np.load(REFERENCE) as reference:
        pair = [
            (
                model.prompt(
                    encoder.encode(reference[f"lm{number}_text_ids"][0]),
                    bundle.voices[str(reference[f"lm{number}_speaker"])].speaker,
                ),
                reference[f"lm{number}_forced_tokens"],
            )
            for number in (0, 1)
        ]

    batched = together(model, model.new_cache(ROWS, 64), [(0, segment) for segment in pair])

    for segment, found in zip(pair, batched, strict=True):
        assert np.abs(found - alone(model, segment)).max() < ROUNDING


@settings(max_examples=40)
@given(arrivals=segments(width=64))
def test_rows_that_join_and_leave(model: SpeechLM, arrivals: list[tuple[int, Segment]]):
    """Segments that join at any step, in any number, give the logits that they give alone."""
    cache = model.new_cache(ROWS, CAPACITY)

    batched = together(model, cache, arrivals)

    for (_, segment), found in zip(arrivals, batched, strict=True):
        assert np.abs(found - alone(model, segment)).max() < ROUNDING
    assert cache.rows == ()


@settings(max_examples=20)
@given(arrivals=segments(width=64))
def test_int8_rows_that_join_and_leave(int8_model: SpeechLM, arrivals: list[tuple[int, Segment]]):
    """Rounding to int8 looks at each row alone, so that neighbours change nothing here either."""
    batched = together(int8_model, int8_model.new_cache(ROWS, CAPACITY), arrivals)

    for (_, segment), found in zip(arrivals, batched, strict=True):
        assert np.abs(found - alone(int8_model, segment)).max() < INT8_ROUNDING


def test_a_prompt_that_is_too_long(model: SpeechLM):
    """A prompt beyond the capacity is refused and leaves the cache as it was."""
    cache = model.new_cache(ROWS, capacity=8)

    with pytest.raises(EngineFailedError, match="more than 8 positions"):
        model.join(cache, 0, np.zeros((9, 64), np.float32))

    assert cache.rows == ()


def test_a_sequence_that_fills_the_cache(model: SpeechLM):
    """The step that finds no more room says so."""
    cache = model.new_cache(ROWS, capacity=4)
    model.join(cache, 2, np.zeros((3, 64), np.float32))
    model.step(cache, [2], np.zeros(1, np.int64))

    with pytest.raises(EngineFailedError, match="more than 4 positions"):
        model.step(cache, [2], np.zeros(1, np.int64))


def test_a_step_wants_every_row(model: SpeechLM):
    """A step that leaves a row out is a mistake of the caller's."""
    cache = model.new_cache(ROWS, CAPACITY)
    model.join(cache, 0, np.zeros((3, 64), np.float32))
    model.join(cache, 3, np.zeros((5, 64), np.float32))

    with pytest.raises(ValueError, match="every row"):
        model.step(cache, [0], np.zeros(1, np.int64))


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_step_on_two_threads_is_one_on_one(
    other: Bundle, tiny_int8: Bundle, precision: str, rows: int
):
    """A core that happens to be free changes no bit of the logits."""
    model = SpeechLM(other if precision == "float32" else tiny_int8, wide_threads=2)
    random = np.random.default_rng(3)
    caches = [model.new_cache(rows, 32) for _ in range(2)]
    for row in range(rows):
        prompt = random.standard_normal((4 + row, 64), dtype=np.float32)
        for cache in caches:
            model.join(cache, row, prompt)

    for _ in range(12):
        tokens = random.integers(0, 61, rows)
        narrow, wide = (
            model.step(cache, range(rows), tokens, is_wide=is_wide)
            for cache, is_wide in zip(caches, (False, True), strict=True)
        )
        assert np.array_equal(narrow, wide)
