"""Speech tokens to mel: conditional flow matching with classifier-free guidance.

Source: Mehta et al. 2023, arXiv 2309.03199 (Matcha-TTS), as CosyVoice uses it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.model.interpolate import interpolate
from utterd.engines.cosyvoice.model.pair import Pair, in_turn
from utterd.engines.cosyvoice.model.session import open_session, run
from utterd.errors import EngineFailedError

# The original stretches the first and last 20 tokens of a segment apart from the rest, so that
# streamed pieces can overlap there; what it learned to hear follows that.
_EDGE_TOKENS = 20


class Flow:
    """Safe to use from several threads."""

    def __init__(self, bundle: Bundle) -> None:
        self._dims = bundle.manifest.flow
        self._vocoder = bundle.manifest.vocoder
        self._encoder = open_session(bundle.graph("flow_encoder"))
        self._regulator = open_session(bundle.graph("length_regulator"))
        self._estimator = open_session(bundle.graph("estimator"))
        self._time = open_session(bundle.graph("time_features"))
        self._tokens = bundle.table("flow_tokens")
        self._positions = bundle.table("flow_positions")
        self._speaker = np.array(bundle.table("flow_speaker"))

    def mel_length(self, tokens: int) -> int:
        """How many mel frames so many speech tokens give."""
        vocoder = self._vocoder
        # In the order of the original, for the last digit decides what int() makes of it.
        duration_s = tokens / self._dims.token_rate_hz
        return int(duration_s * vocoder.sample_rate_hz / vocoder.samples_per_frame)

    def mel(
        self,
        tokens: NDArray[np.int64],
        speaker: NDArray[np.float32],
        noise: NDArray[np.float32],
        *,
        steps: int = 10,
        should_stop: Callable[[], None] = lambda: None,
        pair: Pair = in_turn,
        prompt_tokens: NDArray[np.int64] | None = None,
        prompt_mel: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """Speak tokens.

        Args:
            tokens: shape (T,), T at least 1.
            speaker: the voice's embedding, shape (192,).
            noise: standard normal, shape (prompt frames + mel_length(T), mel bins).
            steps: of the Euler solver.
            should_stop: called before every step; raises to give up.
            pair: runs the two halves of the guidance. They are never one batch: in int8 they would
                share a scale, and a core that is free can take one of them.
            prompt_tokens: of a zero-shot voice's recording.
            prompt_mel: of the same, shape (frames, mel bins).

        Returns:
            Shape (mel_length(T), mel bins).

        Raises:
            EngineFailedError: there are more tokens than the bundle's position table covers.
        """
        if prompt_tokens is None or prompt_mel is None:
            prompt_tokens = np.empty(0, np.int64)
            prompt_mel = np.empty((0, self._dims.mel_bins), np.float32)
        mu = self._mu(np.concatenate([prompt_tokens, tokens]), len(prompt_tokens), len(prompt_mel))
        condition = np.zeros_like(mu)
        condition[: len(prompt_mel)] = prompt_mel
        x = self._solve(mu, condition, self._project(speaker), noise, steps, should_stop, pair)
        return x[len(prompt_mel) :]

    def _mu(
        self, tokens: NDArray[np.int64], prompt_tokens: int, prompt_frames: int
    ) -> NDArray[np.float32]:
        """The condition from tokens at mel rate, shape (frames, mel bins)."""
        count, middle = len(tokens), self._positions.shape[1] // 2
        if count > self._dims.encoder.positions:
            raise EngineFailedError(
                f"a segment became {count} speech tokens, the voice takes"
                f" {self._dims.encoder.positions}: send shorter sentences"
            )
        inputs = {"x": self._tokens[tokens][None]}
        for number, table in enumerate(self._positions):
            inputs[f"positions_{number}"] = table[middle - count + 1 : middle + count]
        hidden: NDArray[np.float32] = run(self._encoder, inputs)[0][0]
        spoken = self._stretched(hidden[prompt_tokens:])
        if prompt_tokens:
            spoken = np.concatenate(
                [interpolate(hidden[:prompt_tokens], prompt_frames), spoken], axis=0
            )
        mu: NDArray[np.float32] = run(self._regulator, {"x": spoken[None]})[0][0]
        return mu

    def _stretched(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        frames = self.mel_length(len(hidden))
        if len(hidden) <= 2 * _EDGE_TOKENS:
            return interpolate(hidden, frames)
        edge = self.mel_length(_EDGE_TOKENS)
        return np.concatenate(
            [
                interpolate(hidden[:_EDGE_TOKENS], edge),
                interpolate(hidden[_EDGE_TOKENS:-_EDGE_TOKENS], frames - 2 * edge),
                interpolate(hidden[-_EDGE_TOKENS:], edge),
            ]
        )

    def _project(self, speaker: NDArray[np.float32]) -> NDArray[np.float32]:
        unit = speaker / max(float(np.linalg.norm(speaker)), 1e-12)
        projected: NDArray[np.float32] = self._speaker[:, :-1] @ unit + self._speaker[:, -1]
        return projected.astype(np.float32)

    def _solve(
        self,
        mu: NDArray[np.float32],
        condition: NDArray[np.float32],
        speaker: NDArray[np.float32],
        noise: NDArray[np.float32],
        steps: int,
        should_stop: Callable[[], None],
        pair: Pair,
    ) -> NDArray[np.float32]:
        """Euler from noise to mel along the guided velocity, on the cosine schedule."""
        times = (1 - np.cos(np.linspace(0, 1, steps + 1) * (np.pi / 2))).astype(np.float32)
        features: NDArray[np.float32] = run(self._time, {"t": times[:-1]})[0]
        guided = {"mu": mu[None], "condition": condition[None], "speaker": speaker[None]}
        unguided = {name: np.zeros_like(value) for name, value in guided.items()}
        rate = np.float32(self._dims.guidance_rate)
        x = noise
        for step in range(steps):
            should_stop()
            state = {"x": x[None], "features": features[step : step + 1]}
            estimate = partial(self._estimate, runs_again=step < steps - 1)
            conditional, unconditional = pair(
                partial(estimate, state | guided), partial(estimate, state | unguided)
            )
            velocity = (1 + rate) * conditional - rate * unconditional
            x = x + (times[step + 1] - times[step]) * velocity
        return x

    def _estimate(
        self, inputs: dict[str, NDArray[Any]], *, runs_again: bool
    ) -> NDArray[np.float32]:
        velocity: NDArray[np.float32] = run(self._estimator, inputs, runs_again=runs_again)[0][0]
        return velocity
