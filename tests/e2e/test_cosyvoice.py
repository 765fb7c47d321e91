"""CosyVoice through the whole daemon, on tiny random weights: it makes noise, not speech."""

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from support.bus import Bus, open_bus
from support.cosyvoice import TINY
from support.daemon import Daemon
from support.place import Place
from utterd.app import make_planner
from utterd.config import EngineSettings, QueueLimits, Settings
from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.conversion.convert import convert
from utterd.engines.cosyvoice.manifest import MANIFEST_NAME, Precision
from utterd.engines.cosyvoice.tokenizer import load_tokenizer
from utterd.sandbox import Sandbox
from utterd_schemas.events import EventType
from utterd_schemas.job import Job

# Chinese, English, Japanese, Korean, Cantonese.
MIXED = "我有2个苹果。 Room 806 is here! 部屋は暖かいです。 안녕하세요. 你食咗飯未呀？"
TOKENS_A_SECOND = 50
# Random weights draw no end, so each text token becomes as many as there may be.
SPEECH_TOKENS_A_TEXT_TOKEN = 20


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    directory = tmp_path_factory.mktemp("bundle") / "tiny"
    return convert(TINY, directory, precision=Precision.FLOAT32, report=lambda _step: None).bundle


@pytest.fixture(scope="module")
def place(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Place:
    limits = QueueLimits(retry_delays_s=(1,))
    return Place.make(sandbox, tmp_path_factory.mktemp("place"), limits)


@pytest.fixture(scope="module")
def daemon(start: Callable[..., Daemon], bundle: Bundle) -> Daemon:
    """One process for all rows, whose first voice speaks."""
    return start(
        UTTERD_ENGINE__NAME="cosyvoice",
        UTTERD_ENGINE__BUNDLE=str(bundle.directory),
        UTTERD_ENGINE__EULER_STEPS="2",
    )


@pytest.fixture
async def bus(place: Place) -> AsyncIterator[Bus]:
    async with open_bus(place) as bus:
        yield bus


async def test_five_languages_in_one_job(bus: Bus, daemon: Daemon, bundle: Bundle):
    """The event is true, and the audio is finite and as long as its tokens ask for."""
    settings = Settings(engine=EngineSettings(name="cosyvoice", bundle=bundle.directory))
    plan = make_planner(settings).plan(Job(text=MIXED))
    spoken = "".join(segment.spoken for segment in plan.segments)
    assert "我有两个苹果。" in spoken
    assert "Room eight hundred and six is here!" in spoken
    data = await bus.run(MIXED, voice="cantonese_female")
    assert daemon.pid
    assert (data["voice"], data["engine"]) == ("cosyvoice/粤语女", "cosyvoice")
    assert data["sample_rate_hz"] == 22_050
    assert data["quality"] == {"verdict": "suspect", "reasons": data["quality"]["reasons"]}
    assert "runaway" in data["quality"]["reasons"]
    samples, rate = soundfile.read(io.BytesIO(await bus.audio(data)))
    assert len(samples) == data["frames"]
    assert np.isfinite(samples).all()
    assert np.abs(samples).max() > 0.01
    tokens = load_tokenizer().count(spoken) * SPEECH_TOKENS_A_TEXT_TOKEN
    pauses_s = sum(segment.pause_after_s for segment in plan.segments)
    assert len(samples) / rate == pytest.approx(tokens / TOKENS_A_SECOND + pauses_s, rel=0.1)


async def test_opus_of_the_models_rate_is_raised(bus: Bus, daemon: Daemon):
    """22.05 kHz is no rate of Opus, so the next one is taken (A-05)."""
    data = await bus.run("好。", format="opus")
    assert daemon.pid
    assert data["sample_rate_hz"] == 24_000


async def test_segments_are_heard_before_the_whole(bus: Bus, daemon: Daemon):
    """Each has an object when its event comes, and the whole comes last."""
    text = "好。\n走吧。\n再见。"
    data = await bus.run(text, stream=True)
    assert daemon.pid
    told = [
        event["data"]["segment"]
        for event in bus.events
        if event["type"] == EventType.PROGRESS and event["subject"] == data["job_id"]
    ]
    assert sorted(segment["number"] for segment in told) == [1, 2, 3]
    for segment in told:
        samples, _ = soundfile.read(io.BytesIO(await bus.audio(segment)))
        assert len(samples) == segment["frames"]
    # Each part has edges of its own.
    assert sum(segment["duration_s"] for segment in told) == pytest.approx(
        data["duration_s"], abs=0.5
    )


async def test_a_reload_keeps_the_model_that_speaks(bus: Bus, daemon: Daemon, bundle: Bundle):
    """What stands on the disk by then is for the next start: keys tell what made the audio."""
    before = await bus.run("再见。")
    manifest = bundle.directory / MANIFEST_NAME
    kept = manifest.rename(manifest.with_suffix(".kept"))
    try:
        os.kill(daemon.pid, signal.SIGHUP)
        await daemon.until_logged("reloaded")
    finally:
        kept.rename(manifest)
    assert (await bus.run("再见。"))["key"] == before["key"]


async def test_a_job_is_called_off_in_mid_sentence(bus: Bus, daemon: Daemon):
    """The rows are free again, and the next job is spoken."""
    long = "很长的一句话" * 100
    await bus.publish({"job_id": "unwanted", "text": long})
    await bus.event("unwanted", EventType.STARTED)
    called_off = await asyncio.to_thread(bus.place.utterd, "cancel", "unwanted")
    assert called_off.returncode == 0, called_off.stderr
    event = await bus.terminal("unwanted")
    assert event["type"] == EventType.CANCELLED
    assert daemon.pid
    assert await bus.run("下一个。")


async def test_a_killed_worker_costs_one_attempt(bus: Bus, daemon: Daemon):
    """All its rows are lost with it; another process speaks them at the next attempt."""
    await bus.publish({"job_id": "victim", "text": "很长的一句话" * 12})
    await bus.event("victim", EventType.STARTED)
    (worker,) = (int(line["pid"]) for line in daemon.log if line["event"] == "worker_started")
    os.kill(worker, signal.SIGKILL)
    data = await bus.completed("victim")
    assert data["attempts"] == 2


def test_a_limit_below_the_model_ends_the_start(
    start: Callable[..., Daemon], bundle: Bundle, daemon: Daemon
):
    """Status 78 and what to set it to, not a worker that is killed again and again."""
    assert daemon.pid
    limited = start(
        UTTERD_ENGINE__NAME="cosyvoice",
        UTTERD_ENGINE__BUNDLE=str(bundle.directory),
        UTTERD_ENGINE__MAX_WORKER_BYTES=str(64 * 1024 * 1024),
    )
    assert limited.wait() == os.EX_CONFIG
    assert "set it to at least" in limited.log_path.read_text()


def test_a_bundle_that_is_not_there_ends_the_start(start: Callable[..., Daemon], tmp_path: Path):
    """Status 78 and how to make one."""
    absent = start(UTTERD_ENGINE__NAME="cosyvoice", UTTERD_ENGINE__BUNDLE=str(tmp_path / "absent"))
    assert absent.wait() == os.EX_CONFIG
    assert "utterd bundle convert" in absent.log_path.read_text()
