"""The whole engine on tiny weights: what it makes is noise, of the right length."""

import asyncio
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from utterd.app import make_engine_host, make_planner
from utterd.config import EngineSettings, Settings
from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.decoder import RUNAWAY
from utterd.engines.cosyvoice.engine import CosyVoiceEngine, load_engine
from utterd.engines.cosyvoice.tokenizer import load_tokenizer
from utterd.engines.host import engine_host
from utterd.engines.protocol import (
    PCM,
    CancelledByCallerError,
    CancelToken,
    EngineOptions,
    Utterance,
)
from utterd.errors import ConfigurationError, EngineFailedError, UnknownVoiceError
from utterd.ops.memory import resident_bytes

SAMPLE_RATE_HZ = 22_050
UTTERANCE = Utterance(text="你好，世界。", voice="中文女", language="zh", speed=1.0, seed=7)
TEXTS = ("你好。", "Hello there.", "こんにちは。", "안녕하세요.", "你食咗飯未呀？", "走。")
TOKENS_A_SECOND = 50
MAX_TOKENS_A_TEXT_TOKEN = 20


def open_engine(bundle: Bundle, **options: int) -> CosyVoiceEngine:
    return load_engine(EngineOptions(bundle=bundle.directory, **options), threads=2)


@pytest.fixture(scope="module")
def engine(tiny: Bundle) -> Iterator[CosyVoiceEngine]:
    engine = open_engine(tiny, euler_steps=2)
    yield engine
    engine.close()


def spoken(engine: CosyVoiceEngine, utterance: Utterance) -> PCM:
    return engine.speak(utterance, CancelToken()).pcm


def test_random_weights_run_away_and_it_is_noticed(engine: CosyVoiceEngine):
    """Twenty tokens for each text token are drawn, and the take says that no end came (A-15)."""
    take = engine.speak(UTTERANCE, CancelToken())
    tokens = MAX_TOKENS_A_TEXT_TOKEN * load_tokenizer().count(UTTERANCE.text)
    assert take.pcm.size / SAMPLE_RATE_HZ == pytest.approx(tokens / TOKENS_A_SECOND, abs=0.02)
    assert take.faults == (RUNAWAY,)
    assert take.pcm.dtype == np.float32
    assert np.isfinite(take.pcm).all()
    assert np.abs(take.pcm).max() <= 0.99


def test_the_same_utterance_gives_the_same_samples(engine: CosyVoiceEngine):
    """Another seed and another voice give others."""
    first = spoken(engine, UTTERANCE)
    np.testing.assert_array_equal(spoken(engine, UTTERANCE), first)
    for other in (replace(UTTERANCE, seed=8), replace(UTTERANCE, voice="英文男")):
        assert not np.array_equal(spoken(engine, other), first)


@pytest.mark.parametrize("speed", [0.5, 1.5, 2.0])
def test_speed_changes_the_length_alone(engine: CosyVoiceEngine, speed: float):
    """The tokens are the same, their spectrum is stretched (A-21)."""
    usual = spoken(engine, UTTERANCE).size
    assert spoken(engine, replace(UTTERANCE, speed=speed)).size == pytest.approx(
        usual / speed, abs=256
    )


@settings(max_examples=4)
@given(
    order=st.permutations(range(len(TEXTS))),
    seeds=st.lists(st.integers(0, 2**63 - 1), min_size=len(TEXTS), max_size=len(TEXTS)),
)
def test_parallel_speech_is_serial_speech_bit_by_bit(
    engine: CosyVoiceEngine, order: list[int], seeds: list[int]
):
    """In float32, eight rows give the samples that each of them gives alone (P-25)."""
    utterances = [
        replace(UTTERANCE, text=TEXTS[number], seed=seed)
        for number, seed in zip(order, seeds, strict=True)
    ]
    serial = [spoken(engine, utterance) for utterance in utterances]
    with ThreadPoolExecutor(8) as threads:
        parallel = list(threads.map(lambda utterance: spoken(engine, utterance), utterances))
    for expected, pcm in zip(serial, parallel, strict=True):
        np.testing.assert_array_equal(pcm, expected)


class _CancelAt(CancelToken):
    """A token that is cancelled when it is asked for the n-th time."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number
        self.asked = 0

    def raise_if_cancelled(self) -> None:
        self.asked += 1
        if self.asked == self._number:
            self.cancel()
        super().raise_if_cancelled()


def test_a_cancel_is_seen_at_every_step_of_both_loops(tiny: Bundle):
    """The token is asked once before each token and each Euler step, and ends each of them."""
    engine = open_engine(tiny, euler_steps=10)
    utterance = replace(UTTERANCE, text="走。")
    counting = _CancelAt(0)
    tokens = MAX_TOKENS_A_TEXT_TOKEN * load_tokenizer().count(utterance.text)
    engine.speak(utterance, counting)
    assert counting.asked >= tokens + 10
    for number in (1, 2, tokens // 2, counting.asked - 5, counting.asked):
        with pytest.raises(CancelledByCallerError):
            engine.speak(utterance, _CancelAt(number))
    engine.close()


def test_a_cancelled_segment_leaves_its_neighbours_alone(engine: CosyVoiceEngine):
    """They give the samples that they give without it."""
    expected = [spoken(engine, replace(UTTERANCE, text=text)) for text in TEXTS[:3]]
    with ThreadPoolExecutor(8) as threads:
        unwanted = [
            threads.submit(engine.speak, UTTERANCE, _CancelAt(number)) for number in (3, 20, 60)
        ]
        wanted = list(
            threads.map(lambda text: spoken(engine, replace(UTTERANCE, text=text)), TEXTS[:3])
        )
    assert all(isinstance(one.exception(), CancelledByCallerError) for one in unwanted)
    for one, pcm in zip(expected, wanted, strict=True):
        np.testing.assert_array_equal(pcm, one)


def test_an_unknown_voice_is_refused(engine: CosyVoiceEngine):
    """The message lists the bundle's voices."""
    with pytest.raises(UnknownVoiceError, match="中文女"):
        spoken(engine, replace(UTTERANCE, voice="nobody"))


def test_a_control_token_in_the_text_is_spoken_as_text(engine: CosyVoiceEngine):
    """It makes the speech longer, as any other text does."""
    assert spoken(engine, replace(UTTERANCE, text="<|zh|>好。")).size > (
        spoken(engine, replace(UTTERANCE, text="好。")).size
    )


def test_a_small_cache_cuts_what_does_not_end(tiny: Bundle):
    """Speech ends where its row is full, and a text without room for any is refused."""
    engine = open_engine(tiny, cache_tokens=256, euler_steps=1)
    long = engine.speak(replace(UTTERANCE, text="一二三四五六七八九十" * 2), CancelToken())
    assert long.faults == (RUNAWAY,)
    assert long.pcm.size / SAMPLE_RATE_HZ < 256 / TOKENS_A_SECOND
    with pytest.raises(EngineFailedError, match=r"raise\s+engine\.cache_tokens"):
        spoken(engine, replace(UTTERANCE, text="一二三四五六七八九十" * 12))
    engine.close()


def test_int8_speaks_too(tiny_int8: Bundle):
    """The smaller graphs make sound of the same length."""
    engine = open_engine(tiny_int8, euler_steps=2)
    pcm = spoken(engine, UTTERANCE)
    assert np.isfinite(pcm).all()
    np.testing.assert_array_equal(spoken(engine, UTTERANCE), pcm)
    engine.close()


def test_a_damaged_graph_is_a_configuration_error(tiny: Bundle, tmp_path: Path):
    """The message names the file (P-08)."""
    for file in tiny.directory.iterdir():
        data = file.read_bytes()
        size = len(data) // 2 if file.name == "estimator.onnx" else len(data)
        (tmp_path / file.name).write_bytes(data[:size])
    with pytest.raises(ConfigurationError, match=r"estimator\.onnx"):
        load_engine(EngineOptions(bundle=tmp_path), threads=1)


@pytest.mark.parametrize("name", ["estimator.onnx", "voices.npy", "text_embedding.npy"])
def test_a_file_with_another_digest_is_not_loaded(tiny: Bundle, tmp_path: Path, name: str):
    """One flipped bit anywhere is found, and the file is named."""
    for file in tiny.directory.iterdir():
        data = bytearray(file.read_bytes())
        if file.name == name:
            data[-1] ^= 1
        (tmp_path / file.name).write_bytes(data)
    with pytest.raises(ConfigurationError, match=name):
        load_engine(EngineOptions(bundle=tmp_path), threads=1)


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00v\x00" + b"{" * 118])
def test_a_file_that_is_no_array_is_told_as_changed(tiny: Bundle, tmp_path: Path, content: bytes):
    """Its digest says more than what numpy makes of it."""
    directory = Path(shutil.copytree(tiny.directory, tmp_path / "bundle"))
    (directory / "voices.npy").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"voices\.npy has \d+ bytes, not"):
        load_engine(EngineOptions(bundle=directory), threads=1)


async def test_the_memory_of_a_worker_stays_flat_over_segments_of_all_lengths(tiny: Bundle):
    """What the first segments of all lengths took is all that the next ones take.

    In a process of its own, since a worker's allocator is set at its start.
    """
    options = EngineSettings(
        name="cosyvoice", bundle=tiny.directory, euler_steps=1, cache_tokens=512
    )
    daemon = Settings(engine=options)
    lengths = np.random.default_rng(0).integers(1, 9, 120)
    async with engine_host(make_engine_host(daemon, make_planner(daemon))) as host:
        (pid,) = host.pids

        async def speak(lengths: NDArray[np.int64]) -> int:
            """What the worker holds after segments of these lengths."""
            async with asyncio.TaskGroup() as speaking:
                for length in map(int, lengths):
                    utterance = replace(UTTERANCE, text="字" * length, seed=length)
                    speaking.create_task(host.speak(utterance))
            return resident_bytes(pid)

        before = await speak(lengths[:60])
        assert await speak(lengths[60:]) - before < 8 * 1024 * 1024
