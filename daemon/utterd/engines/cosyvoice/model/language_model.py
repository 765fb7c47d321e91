"""The speech language model: rows of input to logits, for several sequences at once."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.model.cache import KeyValueCache
from utterd.engines.cosyvoice.model.session import open_session, run
from utterd.engines.cosyvoice.model.text_encoder import MASKED

_NORM_EPSILON = 1e-5
_START, _TASK = 0, 1


class SpeechLM:
    """Weights and tables. Several threads may use it, each with a cache of its own.

    A sequence's logits don't depend on the others in its cache; in float32 they may round
    otherwise.

    Args:
        bundle: opened.
        wide_threads: of a step that has the machine to itself. More than one costs the graph's
            weights once more, for onnxruntime binds threads and packed weights to a session.
    """

    def __init__(self, bundle: Bundle, *, wide_threads: int = 1) -> None:
        graph = bundle.graph("language_model")
        self._session = open_session(graph)
        self._wide_session = (
            open_session(graph, threads=wide_threads) if wide_threads > 1 else self._session
        )
        self._dims = bundle.manifest.language_model
        self._cache_dtype = np.int8 if self._dims.cache_bits == 8 else np.float32  # noqa: PLR2004 - as the manifest has it
        self._positions = bundle.table("language_model_positions")
        self._speech = bundle.table("speech_rows")
        self._special = np.array(bundle.table("special_rows"))
        self._speaker = np.array(bundle.table("speaker_projection"))
        self._norm_scale, self._norm_bias = np.array(bundle.table("speaker_norm"))
        self._bound: WeakKeyDictionary[KeyValueCache, _BoundCache] = WeakKeyDictionary()

    def prompt(
        self,
        text_encoding: NDArray[np.float32],
        speaker: NDArray[np.float32],
        prompt_tokens: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float32]:
        """The rows before the first speech token: start, speaker, text, task, prompt tokens.

        Args:
            text_encoding: what `TextEncoder.encode` returns, shape (S, D).
            speaker: the voice's embedding, shape (192,).
            prompt_tokens: speech tokens of a zero-shot voice's recording, shape (P,).

        Returns:
            Shape (S + P + 3, D).
        """
        tokens = np.empty(0, np.int64) if prompt_tokens is None else prompt_tokens
        parts = (
            self._special[[_START]],
            self._speaker_row(speaker),
            text_encoding,
            self._special[[_TASK]],
            self._speech[tokens],
        )
        return np.concatenate(parts)

    def token(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows of speech tokens: (B,) to (B, 1, D)."""
        rows: NDArray[np.float32] = self._speech[ids][:, None]
        return rows

    def new_cache(self, rows: int, capacity: int) -> KeyValueCache:
        """Room for sequences side by side; `capacity` is at most the bundle's positions."""
        return KeyValueCache(
            layers=self._dims.layers,
            rows=rows,
            heads=self._dims.heads,
            capacity=min(capacity, self._dims.positions),
            head_width=self._dims.head_width,
            dtype=self._cache_dtype,
        )

    def join(
        self, cache: KeyValueCache, row: int, prompt: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Add a sequence to a cache at any time.

        Args:
            cache: of `new_cache`.
            row: a number from 0 to below the cache's rows that is not in use.
            prompt: what `prompt` returns, shape (L, D).

        Returns:
            Logits of its first speech token and, last, of the end: (speech tokens + 1,).

        Raises:
            EngineFailedError: the prompt is longer than the capacity.
        """
        length = len(prompt)
        cache.check_fits(length)
        empty = np.empty((1, self._dims.heads, 0, self._dims.head_width), self._cache_dtype)
        inputs: dict[str, NDArray[Any]] = {
            "x": prompt[None],
            "mask": np.triu(np.full((length, length), MASKED), k=1)[None, None],
            "last_row": np.array([length - 1], np.int32),
            "total": np.array([length], np.int32),
        }
        for layer, table in enumerate(self._positions):
            inputs[f"positions_{layer}"] = table[-length:]
            inputs[f"past_key_{layer}"] = inputs[f"past_value_{layer}"] = empty
        outputs = dict(
            zip(
                (output.name for output in self._session.get_outputs()),
                run(self._session, inputs),
                strict=True,
            )
        )
        cache.join(
            row,
            [
                outputs[f"present_{kind}_{layer}"]
                for layer in range(self._dims.layers)
                for kind in ("key", "value")
            ],
        )
        logits: NDArray[np.float32] = outputs["logits"][0]
        return logits

    def step(
        self,
        cache: KeyValueCache,
        rows: Sequence[int],
        tokens: NDArray[np.int64],
        *,
        is_wide: bool = False,
    ) -> NDArray[np.float32]:
        """Give every sequence of a cache its next token.

        Args:
            cache: of `new_cache`.
            rows: all rows in use, in any order.
            tokens: one for each of `rows`, shape (B,).
            is_wide: whether all of `wide_threads` take part. The logits are the same.

        Returns:
            Logits for each of `rows`, shape (B, speech tokens + 1).

        Raises:
            ValueError: `rows` are not the rows in use.
            EngineFailedError: the longest sequence fills the capacity.
        """
        if sorted(rows) != sorted(cache.rows):
            raise ValueError("every row in use takes part in every step")
        cache.advance()
        order = [rows.index(row) for row in cache.rows]
        session = self._wide_session if is_wide else self._session
        logits = self._run_step(session, cache, self.token(np.asarray(tokens)[order]))
        result = np.empty_like(logits)
        result[order] = logits
        return result

    def leave(self, cache: KeyValueCache, row: int) -> None:
        """End a sequence; its row is free again."""
        cache.leave(row)

    def _run_step(
        self,
        session: onnxruntime.InferenceSession,
        cache: KeyValueCache,
        x: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """One step over the cache's memory, which the graph extends in place."""
        count, seen = len(x), cache.clock
        columns = np.arange(seen)
        mask = np.where(columns < cache.starts[:, None], MASKED, np.float32(0))[:, None, None]
        logits = np.empty((count, self._dims.speech_tokens + 1), np.float32)
        last_row, total = np.full(count, seen - 1, np.int32), np.array([seen], np.int32)
        bound = self._bound.get(cache)
        if bound is None or not bound.suits(session, count):
            bound = self._bound[cache] = _BoundCache(session, cache, layers=self._dims.layers)
        bound.input("x", x)
        bound.input("mask", mask)
        bound.input("last_row", last_row)
        bound.input("total", total)
        bound.output("logits", logits)
        for layer, table in enumerate(self._positions):
            bound.input(f"positions_{layer}", table[-seen:])
        bound.run()
        return logits

    def _speaker_row(self, speaker: NDArray[np.float32]) -> NDArray[np.float32]:
        """The speaker as a row of input: unit length, affine, and the LM's input layer."""
        unit = speaker / max(float(np.linalg.norm(speaker)), 1e-12)
        row = self._speaker[:, :-1] @ unit + self._speaker[:, -1]
        row = (row - row.mean()) / np.sqrt(row.var() + _NORM_EPSILON)
        row = np.maximum(row * self._norm_scale + self._norm_bias, 0)
        scaled: NDArray[np.float32] = (row * np.sqrt(self._dims.width)).astype(np.float32)
        return scaled[None]


class _BoundCache:
    """A cache's memory as input and output of a session, from one step to the next.

    To bind all of it takes half a millisecond, and a step takes ten. Arrays are bound by their
    address: they are contiguous, and live until the run is over.
    """

    def __init__(
        self, session: onnxruntime.InferenceSession, cache: KeyValueCache, *, layers: int
    ) -> None:
        self._session = session
        self._rows = len(cache.rows)
        self._binding = session.io_binding()
        for layer in range(layers):
            for kind, memory in (("key", cache.keys(layer)), ("value", cache.values(layer))):
                self.input(f"past_{kind}_{layer}", memory)
                self.output(f"present_{kind}_{layer}", memory)

    def suits(self, session: onnxruntime.InferenceSession, rows: int) -> bool:
        """Whether it is still the session that runs, over as many rows."""
        return session is self._session and rows == self._rows

    def run(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def input(self, name: str, array: NDArray[np.generic]) -> None:
        self._binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def output(self, name: str, array: NDArray[np.generic]) -> None:
        self._binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
