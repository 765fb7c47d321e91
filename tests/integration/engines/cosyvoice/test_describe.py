"""What the daemon learns of a bundle without loading it."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.cosyvoice import TINY
from utterd.app import make_planner
from utterd.config import EngineSettings, Settings
from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.manifest import Precision
from utterd.engines.cosyvoice.module import describe
from utterd.engines.protocol import EngineOptions
from utterd.errors import ConfigurationError
from utterd_schemas.job import Job


@pytest.fixture
def options(tiny: Bundle) -> EngineOptions:
    return EngineOptions(bundle=tiny.directory)


def test_knows_the_seven_presets(options: EngineOptions):
    """Each speaks five languages, its own one first, and is one process's work for eight rows."""
    info = describe(options)
    assert (info.name, info.sample_rate_hz, info.concurrency) == ("cosyvoice", 22_050, 8)
    assert [(voice.name, voice.languages[0]) for voice in info.voices] == [
        ("中文女", "zh"),
        ("中文男", "zh"),
        ("日语男", "ja"),
        ("粤语女", "yue"),
        ("英文女", "en"),
        ("英文男", "en"),
        ("韩语女", "ko"),
    ]
    assert all(set(voice.languages) == {"zh", "en", "ja", "yue", "ko"} for voice in info.voices)


@pytest.mark.parametrize(
    ("precision", "saturates", "caveats"),
    [(Precision.INT8, True, 1), (Precision.INT8, False, 0), (Precision.INT7, True, 0)],
)
def test_int8_on_a_processor_that_cuts_its_sums_is_a_caveat(
    convert_once, monkeypatch, precision, saturates, caveats
):
    """And says how to convert the checkpoint for it."""
    monkeypatch.setattr(
        "utterd.engines.cosyvoice.describe.saturates_int8_products", lambda: saturates
    )
    info = describe(EngineOptions(bundle=convert_once(TINY, precision).directory))
    assert len(info.caveats) == caveats
    assert all("--precision int7" in caveat for caveat in info.caveats)


@pytest.mark.parametrize(
    ("name", "voice"),
    [
        ("cosyvoice/中文女", "中文女"),
        ("中文男", "中文男"),
        ("0", "中文女"),
        ("6", "韩语女"),
        ("cosyvoice/3", "粤语女"),
        ("japanese_male", "日语男"),
        ("cosyvoice/english_female", "英文女"),
        ("default", "中文女"),
    ],
)
def test_a_preset_is_asked_for_by_any_of_its_names(tiny: Bundle, name: str, voice: str):
    """By name, by number and in ASCII, with and without the engine's name."""
    settings = Settings(engine=EngineSettings(name="cosyvoice", bundle=tiny.directory))
    planner = make_planner(settings)
    assert planner.voice(name).name == voice
    plan = planner.plan(Job(text="你好 2 times", voice=name))
    assert plan.full_voice == f"cosyvoice/{voice}"
    assert plan.key == planner.plan(Job(text="你好 2 times", voice=f"cosyvoice/{voice}")).key


def test_the_digest_holds_what_changes_the_sound(tiny: Bundle, other: Bundle, tiny_int8: Bundle):
    """Weights, precision and Euler steps make other keys; the number of rows does not."""
    options = EngineOptions(bundle=tiny.directory)
    digest = describe(options).bundle
    assert describe(options).bundle == digest
    assert describe(replace(options, rows=3)).bundle == digest
    changed = [
        describe(replace(options, euler_steps=5)).bundle,
        describe(replace(options, cache_tokens=512)).bundle,
        describe(replace(options, bundle=tiny_int8.directory)).bundle,
    ]
    assert len({digest, *changed}) == 4
    with pytest.raises(ConfigurationError, match="reads 97 text tokens"):
        describe(replace(options, bundle=other.directory))


@pytest.mark.parametrize(
    ("bundle", "message"),
    [(None, r"set\s+engine\.bundle"), (Path("/nonexistent"), "utterd bundle convert")],
)
def test_without_a_bundle_nothing_starts(bundle: Path | None, message: str):
    """The message says how to make one and where to name it."""
    with pytest.raises(ConfigurationError, match=message):
        describe(EngineOptions(bundle=bundle))


def test_the_memory_limit_fits_the_model(options: EngineOptions):
    """It leaves room for the weights, for a full cache, and to work."""
    small, large = describe(replace(options, rows=1)), describe(options)
    cache_bytes = 7 * 2048 * 2 * 64 * 2 * 4
    assert large.max_worker_bytes - small.max_worker_bytes == cache_bytes
    assert small.max_worker_bytes > 2**30
