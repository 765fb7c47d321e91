"""Continuous batching: one thread gives every segment in hand its next speech token.

A step over eight rows costs less than twice one over a single row, so segments of one text and of
different jobs are decoded side by side. They join and leave at any step, and what one of them
draws doesn't depend on the others. When to take the next step is up to `pace.py`.
"""

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from utterd.engines.cosyvoice.pace import should_step
from utterd.engines.cosyvoice.sampling import TokenSampler, ends_in_loop
from utterd.engines.protocol import CancelToken
from utterd.errors import EngineFailedError

RUNAWAY = "runaway"
"""Fault: no end was drawn before the limit."""

REPEATED_TOKENS = "repeated_tokens"
"""Fault: the segment ended in a loop, and was stopped there."""

# Often enough to save time, and seldom enough to cost none.
_LOOP_CHECK_INTERVAL = 25

# A token tells nobody that it is cancelled, nor a queue that it is empty. While decoding rests, all
# cores are busy, so none waits for this.
_REST_S = 0.02

Cache = TypeVar("Cache")


class LanguageModel(Protocol[Cache]):
    """What is decoded from; `SpeechLM` says what each of them does."""

    def new_cache(self, rows: int, capacity: int) -> Cache: ...

    def join(self, cache: Cache, row: int, prompt: NDArray[np.float32]) -> NDArray[np.float32]: ...

    def step(
        self, cache: Cache, rows: Sequence[int], tokens: NDArray[np.int64], *, is_wide: bool
    ) -> NDArray[np.float32]: ...

    def leave(self, cache: Cache, row: int) -> None: ...


class SharedCores(Protocol):
    """The cores that others work on, too; `Cores` says what each of them does."""

    def claim(self, timeout_s: float) -> bool: ...

    def release(self) -> None: ...

    def queued(self) -> int: ...

    def are_free(self) -> bool: ...


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A segment to be decoded.

    Attributes:
        prompt: rows before the first speech token, float32 of shape (l, width).
        sampler: draws its tokens.
        max_tokens: more are not drawn.
        cancel: asked before every step.
    """

    prompt: NDArray[np.float32]
    sampler: TokenSampler
    max_tokens: int
    cancel: CancelToken


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """The speech tokens of a segment.

    Attributes:
        tokens: int64 of shape (t,), without the end.
        faults: `RUNAWAY` or `REPEATED_TOKENS`, or nothing.
    """

    tokens: NDArray[np.int64]
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _InHand:
    request: Request
    outcome: Future[Decoded] = field(default_factory=Future)


class Decoder(Generic[Cache]):
    """Decodes for any number of threads in one thread of its own, until it is closed.

    Args:
        model: the language model.
        rows: how many segments are decoded side by side.
        capacity: positions of a row's cache.
        cores: gives the thread one while it decodes, and is asked whether it should.
    """

    def __init__(
        self,
        model: LanguageModel[Cache],
        *,
        rows: int,
        capacity: int,
        cores: SharedCores,
    ) -> None:
        self._model = model
        self._rows = rows
        self._capacity = capacity
        self._cores = cores
        self._cache = model.new_cache(rows, capacity)
        self._active: dict[int, _InHand] = {}
        self._waiting: deque[_InHand] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True)
        self._thread.start()

    def decode(self, request: Request) -> Decoded:
        """Draw a segment's tokens; returns when the last one is drawn.

        Raises:
            CancelledByCallerError: its token was cancelled.
            EngineFailedError: the model failed, or the prompt does not fit.
            RuntimeError: the decoder is closed.
        """
        in_hand = _InHand(request)
        with self._changed:
            if self._is_closed:
                raise RuntimeError("the decoder is closed")
            self._waiting.append(in_hand)
            self._changed.notify()
        return in_hand.outcome.result()

    def close(self) -> None:
        """End the thread after its present step; what is in hand fails."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        error = EngineFailedError("the engine was closed. Send the job again")
        in_hand = [*self._active.values(), *self._waiting]
        self._active.clear()
        self._waiting.clear()
        for one in in_hand:
            one.outcome.set_exception(error)

    def _run(self) -> None:
        while self._await_turn():
            self._drop_cancelled()
            for row in range(self._rows):
                if row not in self._active and (in_hand := self._next_waiting()):
                    self._admit(row, in_hand)
            if self._active:
                self._step()

    def _await_turn(self) -> bool:
        """Wait until the next step is worth its core; False when the decoder was closed."""
        while not self._is_closed:
            in_hand = len(self._active) + len(self._waiting)
            if in_hand and should_step(in_hand, rows=self._rows, queued=self._cores.queued()):
                if self._cores.claim(_REST_S):
                    return True
            else:
                self._cores.release()
                with self._changed:
                    if in_hand:
                        self._changed.wait(_REST_S)
                    else:
                        self._changed.wait_for(lambda: self._waiting or self._is_closed)
            self._drop_cancelled()
        self._cores.release()
        return False

    def _next_waiting(self) -> _InHand | None:
        with self._changed:
            return self._waiting.popleft() if self._waiting else None

    def _admit(self, row: int, in_hand: _InHand) -> None:
        request = in_hand.request
        try:
            logits = self._model.join(self._cache, row, request.prompt)
        except Exception as error:  # noqa: BLE001 - it is raised where the segment is waited for
            in_hand.outcome.set_exception(error)
            return
        self._active[row] = in_hand
        self._draw(row, logits)

    def _drop_cancelled(self) -> None:
        for row, in_hand in list(self._active.items()):
            if error := _cancellation(in_hand):
                self._end(row, error)
        with self._changed:
            dropped = [(one, error) for one in self._waiting if (error := _cancellation(one))]
            for in_hand, _ in dropped:
                self._waiting.remove(in_hand)
        for in_hand, error in dropped:
            in_hand.outcome.set_exception(error)

    def _step(self) -> None:
        rows = list(self._active)
        last = np.array([self._active[row].request.sampler.tokens[-1] for row in rows], np.int64)
        try:
            logits = self._model.step(self._cache, rows, last, is_wide=self._cores.are_free())
        except Exception as error:  # noqa: BLE001 - likewise
            self._start_over(error)
            return
        for row, row_logits in zip(rows, logits, strict=True):
            self._draw(row, row_logits)

    def _draw(self, row: int, logits: NDArray[np.float32]) -> None:
        request = self._active[row].request
        sampler = request.sampler
        try:
            token = sampler.draw(logits)
        except Exception as error:  # noqa: BLE001 - likewise
            self._end(row, error)
            return
        count = len(sampler.tokens)
        if token is None:
            self._end(row, _decoded(sampler))
        elif count >= request.max_tokens:
            self._end(row, _decoded(sampler, RUNAWAY))
        elif count % _LOOP_CHECK_INTERVAL == 0 and ends_in_loop(sampler.tokens):
            self._end(row, _decoded(sampler, REPEATED_TOKENS))

    def _end(self, row: int, outcome: Decoded | Exception) -> None:
        in_hand = self._active.pop(row)
        self._model.leave(self._cache, row)
        if isinstance(outcome, Exception):
            in_hand.outcome.set_exception(outcome)
        else:
            in_hand.outcome.set_result(outcome)

    def _start_over(self, error: Exception) -> None:
        """A step failed, and nobody knows what it left of the cache."""
        self._cache = self._model.new_cache(self._rows, self._capacity)
        failed = list(self._active.values())
        self._active.clear()
        for in_hand in failed:
            in_hand.outcome.set_exception(error)


def _cancellation(in_hand: _InHand) -> Exception | None:
    try:
        in_hand.request.cancel.raise_if_cancelled()
    except Exception as error:  # noqa: BLE001 - it is raised where the segment is waited for
        return error
    return None


def _decoded(sampler: TokenSampler, *faults: str) -> Decoded:
    return Decoded(np.array(sampler.tokens, np.int64), faults)
