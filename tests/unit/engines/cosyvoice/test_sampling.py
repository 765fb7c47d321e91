"""Repetition-aware sampling."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.engines.cosyvoice.manifest import Sampling
from utterd.engines.cosyvoice.sampling import TokenSampler, ends_in_loop
from utterd.errors import EngineFailedError

SIZE = 41
END = SIZE - 1
RULE = Sampling(top_p=0.8, top_k=25, window=10, repetition_ratio=0.1)


def sampler(seed: int = 0, *, min_tokens: int = 0) -> TokenSampler:
    return TokenSampler(
        RULE,
        end_token=END,
        min_tokens=min_tokens,
        generator=np.random.default_rng(seed),
    )


def logits_of(probabilities: dict[int, float]) -> np.ndarray:
    logits = np.full(SIZE, -50.0, np.float32)
    for token, probability in probabilities.items():
        logits[token] = np.log(probability)
    return logits


def draws(logits: np.ndarray, count: int = 2000) -> Counter[int | None]:
    """What fresh samplers draw first."""
    return Counter(sampler(seed).draw(logits) for seed in range(count))


def test_the_nucleus_ends_with_the_token_that_fills_it():
    """With 0.5, 0.35, 0.1 and 0.05 and top-p 0.8, the first two are drawn, in proportion."""
    counts = draws(logits_of({3: 0.5, 5: 0.35, 7: 0.1, 9: 0.05}))
    assert set(counts) == {3, 5}
    assert counts[3] / counts[5] == pytest.approx(0.5 / 0.35, rel=0.15)


def test_the_nucleus_has_at_most_25_tokens():
    """Of equal probabilities, no more are drawn."""
    counts = draws(np.zeros(SIZE, np.float32))
    assert len(counts) == 25


def test_a_token_of_the_last_ten_is_banned_once():
    """Another is drawn from the whole distribution, also from outside the nucleus."""
    logits = logits_of({3: 0.9, 5: 0.06, 7: 0.04})
    seconds = set()
    for seed in range(200):
        one = sampler(seed)
        assert one.draw(logits) == 3
        seconds.add(one.draw(logits))
    assert seconds == {5, 7}


def test_a_token_of_eleven_back_is_no_repetition():
    """The window is ten tokens long."""
    one = sampler()
    one.tokens = [3, *range(10, 20)]
    assert one.draw(logits_of({3: 1.0})) == 3


def test_the_end_is_not_drawn_too_early():
    """Below the least number of tokens the end is masked, and at once after it is drawn."""
    one = sampler(min_tokens=3)
    logits = logits_of({END: 0.99, 3: 0.004, 5: 0.003, 7: 0.003})
    drawn = [one.draw(logits) for _ in range(4)]
    assert None not in drawn[:3]
    assert drawn[3] is None
    assert len(one.tokens) == 3


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_not_finite_are_an_engine_fault(value: float):
    """A broken model is not heard as noise."""
    logits = np.zeros(SIZE, np.float32)
    logits[4] = value
    with pytest.raises(EngineFailedError, match="not finite"):
        sampler().draw(logits)


@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_the_same_seed_draws_the_same_tokens(seed: int, logits_seed: int):
    """A sampler's draws depend on nothing but its logits and its seed."""
    logits = np.random.default_rng(logits_seed).standard_normal((20, SIZE)).astype(np.float32)
    one, other = sampler(seed), sampler(seed)
    first = [one.draw(row) for row in logits]
    assert [other.draw(row) for row in logits] == first
    assert all(token is None or 0 <= token < END for token in first)


@pytest.mark.parametrize("period", [1, 2, 7, 25])
def test_a_loop_is_found_after_a_second_and_a_half(period: int):
    """The same tokens over and over again are found, whatever came before."""
    start = list(range(100, 160))
    loop = (list(range(period)) * 100)[: 75 + period]
    assert ends_in_loop(start + loop)
    assert not ends_in_loop(start + loop[:-1])


@given(st.lists(st.integers(0, 4000), min_size=0, max_size=300, unique=True))
def test_tokens_without_a_repetition_are_no_loop(tokens: list[int]):
    """Speech goes on."""
    assert not ends_in_loop(tokens)
