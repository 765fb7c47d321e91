"""Continuous batching over a model that is a few lines of arithmetic."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from utterd.engines.cosyvoice.decoder import (
    REPEATED_TOKENS,
    RUNAWAY,
    Decoded,
    Decoder,
    Request,
)
from utterd.engines.cosyvoice.manifest import Sampling
from utterd.engines.cosyvoice.sampling import TokenSampler
from utterd.engines.protocol import CancelledByCallerError, CancelToken
from utterd.errors import EngineFailedError

END = 400
ROWS = 4
CAPACITY = 200
LIMIT = 150
RULE = Sampling(top_p=0.8, top_k=25, window=10, repetition_ratio=0.1)
GREEDY = Sampling(top_p=0.1, top_k=1, window=10, repetition_ratio=2.0)

# What a prompt of this first number does.
SPEAK, LOOP, BREAK_AT_JOIN, BREAK_AT_DRAW, BREAK_STEP, NO_END = range(6)


@dataclass
class ToyCache:
    histories: dict[int, list[int]] = field(default_factory=dict)


@dataclass
class ToyModel:
    """Logits that are a function of a row's own prompt and tokens.

    A step waits for the gate, so that a test can act between two steps.
    """

    gate: threading.Semaphore | None = None
    widest_step: int = 0
    wide_steps: int = 0
    caches: list[ToyCache] = field(default_factory=list)

    def new_cache(self, rows: int, capacity: int) -> ToyCache:
        assert (rows, capacity) == (ROWS, CAPACITY)
        self.caches.append(ToyCache())
        return self.caches[-1]

    def join(self, cache: ToyCache, row: int, prompt: NDArray[np.float32]) -> NDArray[np.float32]:
        kind, seed = map(int, prompt[:, 0])
        if kind == BREAK_AT_JOIN:
            raise EngineFailedError("the prompt does not fit")
        assert row not in cache.histories
        cache.histories[row] = [kind, seed]
        return self._logits(cache.histories[row])

    def step(
        self,
        cache: ToyCache,
        rows: Sequence[int],
        tokens: NDArray[np.int64],
        *,
        is_wide: bool,
    ) -> NDArray[np.float32]:
        if self.gate is not None:
            self.gate.acquire()
        assert sorted(rows) == sorted(cache.histories)
        self.widest_step = max(self.widest_step, len(rows))
        self.wide_steps += is_wide
        if any(cache.histories[row][0] == BREAK_STEP for row in rows):
            raise RuntimeError("out of memory")
        for row, token in zip(rows, tokens, strict=True):
            cache.histories[row].append(int(token))
        return np.stack([self._logits(cache.histories[row]) for row in rows])

    def leave(self, cache: ToyCache, row: int) -> None:
        del cache.histories[row]

    def _logits(self, history: list[int]) -> NDArray[np.float32]:
        kind, seed, *tokens = history
        if kind == BREAK_AT_DRAW and len(tokens) == 3:
            return np.full(END + 1, np.nan, np.float32)
        logits = np.random.default_rng([seed, *tokens]).standard_normal(END + 1) * 4
        logits[END] = -50 if kind == NO_END or len(tokens) < seed % 20 else 14
        if kind == LOOP:
            logits[len(tokens) % 3] = 50
        return logits.astype(np.float32)


@dataclass
class ToyCores:
    """Notes what it is told, and says what a test wants it to say.

    Attributes:
        decoding: whether a core was claimed or released, each time.
        queue: one entry for each decoded segment that waits for a core.
        is_sound_made: whether somebody works on one.
        has_room: set unless somebody works on each of them.
    """

    decoding: list[bool] = field(default_factory=list)
    queue: list[None] = field(default_factory=list)
    is_sound_made: bool = False
    has_room: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.has_room.set()

    def claim(self, timeout_s: float) -> bool:
        self.decoding.append(True)
        return self.has_room.wait(timeout_s)

    def release(self) -> None:
        self.decoding.append(False)

    def queued(self) -> int:
        return len(self.queue)

    def are_free(self) -> bool:
        return not self.is_sound_made


@dataclass
class Bench:
    """A decoder, and threads to ask it."""

    model: ToyModel
    decoder: Decoder[ToyCache]
    threads: ThreadPoolExecutor
    cores: ToyCores

    def request(
        self, kind: int = SPEAK, seed: int = 0, cancel: CancelToken | None = None
    ) -> Request:
        sampler = TokenSampler(
            GREEDY if kind == LOOP else RULE,
            end_token=END,
            min_tokens=2,
            generator=np.random.default_rng(seed),
        )
        prompt = np.array([[kind], [seed]], np.float32)
        return Request(prompt, sampler, LIMIT, cancel or CancelToken())

    def ask(self, *arguments: object) -> Future[Decoded]:
        return self.threads.submit(self.decoder.decode, self.request(*arguments))  # type: ignore[arg-type]

    def tokens(self, *arguments: object) -> list[int]:
        return self.ask(*arguments).result(10).tokens.tolist()


@pytest.fixture
def make_bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(model: ToyModel | None = None) -> Bench:
        model, cores = model or ToyModel(), ToyCores()
        decoder = Decoder(model, rows=ROWS, capacity=CAPACITY, cores=cores)
        made.append(Bench(model, decoder, ThreadPoolExecutor(16), cores))
        return made[-1]

    yield make
    for bench in made:
        if bench.model.gate is not None:
            bench.model.gate.release(1000)
        bench.decoder.close()
        bench.threads.shutdown()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()


@settings(max_examples=30)
@given(seeds=st.lists(st.integers(0, 10_000), min_size=1, max_size=12))
def test_segments_side_by_side_are_those_alone(seeds: list[int]):
    """More segments than rows, joining and leaving as it happens, draw what each draws alone."""
    model, cores = ToyModel(), ToyCores()
    decoder = Decoder(model, rows=ROWS, capacity=CAPACITY, cores=cores)
    with ThreadPoolExecutor(16) as threads:
        bench = Bench(model, decoder, threads, cores)
        alone = [bench.tokens(SPEAK, seed) for seed in seeds]
        together = [bench.ask(SPEAK, seed) for seed in seeds]
        assert [one.result(10).tokens.tolist() for one in together] == alone
    decoder.close()
    assert model.caches[-1].histories == {}


def test_rows_join_between_two_steps(make_bench: Callable[..., Bench]):
    """A segment that comes while others are decoded takes part in the next step."""
    bench = make_bench(ToyModel(gate=threading.Semaphore(0)))
    assert bench.model.gate is not None
    first = bench.ask(NO_END, 1)
    bench.model.gate.release(2)
    others = [bench.ask(NO_END, seed) for seed in (2, 3, 4, 5)]
    bench.model.gate.release(1000)
    assert all(len(one.result(10).tokens) == LIMIT for one in (first, *others))
    assert bench.model.widest_step == ROWS


def test_no_end_is_a_fault(bench: Bench):
    """What reaches the limit without an end is kept, and called a runaway."""
    decoded = bench.ask(NO_END, 3).result(10)
    assert len(decoded.tokens) == LIMIT
    assert decoded.faults == (RUNAWAY,)
    assert bench.ask(SPEAK, 3).result(10).faults == ()


def test_a_loop_is_stopped_early(bench: Bench):
    """The same three tokens are not decoded up to the limit."""
    decoded = bench.ask(LOOP, 3).result(10)
    assert decoded.faults == (REPEATED_TOKENS,)
    assert len(decoded.tokens) < LIMIT


@pytest.mark.parametrize("kind", [BREAK_AT_JOIN, BREAK_AT_DRAW])
def test_a_row_that_fails_fails_alone(bench: Bench, kind: int):
    """Its neighbours draw what they draw without it."""
    alone = [bench.tokens(SPEAK, seed) for seed in range(15, 19)]
    together = [bench.ask(SPEAK, seed) for seed in range(15, 19)]
    bad = bench.ask(kind, 7)
    with pytest.raises(EngineFailedError):
        bad.result(10)
    assert [one.result(10).tokens.tolist() for one in together] == alone


def test_a_step_that_fails_ends_its_rows_and_no_others(bench: Bench):
    """The cache is made anew, and the next segment finds a sound decoder."""
    with pytest.raises(RuntimeError, match="out of memory"):
        bench.ask(BREAK_STEP, 7).result(10)
    assert bench.tokens(SPEAK, 12)
    assert len(bench.model.caches) == 2


def test_a_cancel_is_seen_at_the_next_step(make_bench: Callable[..., Bench]):
    """A segment that nobody wants leaves its row, and the others go on."""
    bench = make_bench(ToyModel(gate=threading.Semaphore(0)))
    assert bench.model.gate is not None
    cancel = CancelToken()
    unwanted, wanted = bench.ask(NO_END, 1, cancel), bench.ask(NO_END, 2)
    bench.model.gate.release(3)
    cancel.cancel()
    bench.model.gate.release(1)
    with pytest.raises(CancelledByCallerError):
        unwanted.result(10)
    assert not wanted.done()
    bench.model.gate.release(1000)
    assert len(wanted.result(10).tokens) == LIMIT


def test_a_segment_that_was_cancelled_in_the_line_is_never_begun(make_bench: Callable[..., Bench]):
    """It takes no row and costs no prefill."""
    bench = make_bench()
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(CancelledByCallerError):
        bench.ask(BREAK_AT_JOIN, 1, cancel).result(10)


def test_rests_while_decoded_segments_wait_for_a_core(bench: Bench):
    """A batch that could be fuller waits for the queue to empty, or for more rows."""
    bench.cores.queue.append(None)
    narrow = [bench.ask(NO_END, seed) for seed in range(ROWS - 1)]
    with pytest.raises(TimeoutError):
        narrow[0].result(0.1)
    assert True not in bench.cores.decoding
    full = bench.ask(NO_END, ROWS)
    assert all(len(one.result(10).tokens) == LIMIT for one in (*narrow, full))
    assert bench.model.widest_step == ROWS


def test_goes_on_when_the_queue_is_empty(bench: Bench):
    """A lone segment is decoded as soon as no other waits for a core."""
    bench.cores.queue.append(None)
    lone = bench.ask(SPEAK, 5)
    bench.cores.queue.clear()
    assert lone.result(10).tokens.size


def test_waits_for_a_core_of_its_own(bench: Bench):
    """A thread more than there are cores would slow all of them down."""
    bench.cores.has_room.clear()
    lone = bench.ask(SPEAK, 5)
    with pytest.raises(TimeoutError):
        lone.result(0.1)
    bench.cores.has_room.set()
    assert lone.result(10).tokens.size


@pytest.mark.parametrize(
    "occupy",
    [
        pytest.param(lambda cores: cores.queue.append(None), id="others_wait"),
        pytest.param(lambda cores: cores.has_room.clear(), id="others_work"),
    ],
)
def test_a_cancel_is_seen_at_rest(bench: Bench, occupy: Callable[[ToyCores], None]):
    """A segment that nobody wants does not wait for the others' cores."""
    occupy(bench.cores)
    cancel = CancelToken()
    unwanted, wanted = bench.ask(SPEAK, 5, cancel), bench.ask(SPEAK, 6)
    cancel.cancel()
    with pytest.raises(CancelledByCallerError):
        unwanted.result(10)
    assert not wanted.done()


@pytest.mark.parametrize("is_sound_made", [False, True])
def test_takes_all_cores_where_nobody_else_does(bench: Bench, *, is_sound_made: bool):
    """A step spreads over them only while no sound is made beside it."""
    bench.cores.is_sound_made = is_sound_made
    bench.tokens(SPEAK, 5)
    assert bool(bench.model.wide_steps) is not is_sound_made


def test_tells_when_it_is_busy(bench: Bench):
    """Whoever shares the cores with it hears when it begins and ends."""
    bench.tokens(SPEAK, 5)
    bench.decoder.close()
    assert True in bench.cores.decoding
    assert not bench.cores.decoding[-1]


def test_closing_fails_what_is_in_hand(make_bench: Callable[..., Bench]):
    """Nobody waits for ever."""
    bench = make_bench(ToyModel(gate=threading.Semaphore(0)))
    assert bench.model.gate is not None
    asked = [bench.ask(NO_END, seed) for seed in range(6)]
    closing = bench.threads.submit(bench.decoder.close)
    bench.model.gate.release(1000)
    closing.result(10)
    for one in asked:
        with pytest.raises((EngineFailedError, RuntimeError)):
            one.result(10)
    with pytest.raises(RuntimeError, match="closed"):
        bench.decoder.decode(bench.request())
