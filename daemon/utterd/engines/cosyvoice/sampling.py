"""Draws speech tokens from logits: repetition-aware sampling.

Source: Chen et al. 2024, arXiv 2406.05370 (VALL-E 2), with the settings and limits of CosyVoice.
"""

import numpy as np
from numpy.typing import NDArray

from utterd.engines.cosyvoice.manifest import Sampling
from utterd.errors import EngineFailedError

MIN_TOKENS_A_TEXT_TOKEN = 2
"""The end is not drawn before there are so many speech tokens for each text token."""

MAX_TOKENS_A_TEXT_TOKEN = 20
"""What has found no end by then has lost its text."""

# A second and a half of the same few sounds is no speech.
_LOOP_TOKENS = 75
_LOOP_MAX_PERIOD = 25


class TokenSampler:
    """Draws the tokens of one segment, from a generator of its own.

    What is drawn depends on this segment's logits and its seed alone.

    Args:
        rule: top-p, top-k, and when a token counts as repeated.
        end_token: id of the end of speech, the last of the logits.
        min_tokens: before these, the end is not drawn.
        generator: of the random numbers.

    Attributes:
        tokens: what was drawn so far, without the end.
    """

    def __init__(
        self,
        rule: Sampling,
        *,
        end_token: int,
        min_tokens: int,
        generator: np.random.Generator,
    ) -> None:
        self._rule = rule
        self._end_token = end_token
        self._min_tokens = min_tokens
        self._generator = generator
        self.tokens: list[int] = []

    def draw(self, logits: NDArray[np.float32]) -> int | None:
        """The next token, or None at the end of speech.

        Args:
            logits: shape (end token + 1,).

        Raises:
            EngineFailedError: the logits are not finite.
        """
        scores = logits.astype(np.float64)
        if not np.isfinite(scores).all():
            raise EngineFailedError(
                "the language model returned numbers that are not finite. Send the job again; if"
                " it fails again, verify the bundle with `utterd bundle verify`"
            )
        if len(self.tokens) < self._min_tokens:
            scores[self._end_token] = -np.inf
        token = self._draw_from_nucleus(scores)
        recent = self.tokens[-self._rule.window :]
        if recent.count(token) >= self._rule.window * self._rule.repetition_ratio:
            scores[token] = -np.inf
            token = self._pick(softmax(scores))
        if token == self._end_token:
            return None
        self.tokens.append(token)
        return token

    def _draw_from_nucleus(self, scores: NDArray[np.float64]) -> int:
        count = min(self._rule.top_k, scores.size)
        likeliest = np.argpartition(scores, -count)[-count:]
        # By score and then by id, so that equal scores have an order too.
        likeliest = likeliest[np.lexsort((likeliest, -scores[likeliest]))]
        probabilities = softmax(scores)[likeliest]
        before = np.cumsum(probabilities) - probabilities
        nucleus = probabilities[before < self._rule.top_p]
        return int(likeliest[self._pick(nucleus)])

    def _pick(self, weights: NDArray[np.float64]) -> int:
        """An index, with a probability in proportion to its weight."""
        edges = np.cumsum(weights)
        place = self._generator.random() * edges[-1]
        # A weight of zero ends where it begins, and so is never found.
        return int(min(np.searchsorted(edges, place, side="right"), np.flatnonzero(weights)[-1]))


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of scores, of which at least one is finite; same shape."""
    weights: NDArray[np.float64] = np.exp(scores - scores.max())
    weights /= weights.sum()
    return weights


def ends_in_loop(tokens: list[int]) -> bool:
    """Whether a sequence has come to repeat the same few tokens."""
    tail = np.array(tokens[-(_LOOP_TOKENS + _LOOP_MAX_PERIOD) :])
    if tail.size < _LOOP_TOKENS:
        return False
    return any(
        tail.size >= _LOOP_TOKENS + period
        and bool(np.array_equal(tail[-_LOOP_TOKENS:], tail[-_LOOP_TOKENS - period : -period]))
        for period in range(1, _LOOP_MAX_PERIOD + 1)
    )
