"""hibari itself, in this process."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from utterd.engines.hibari import describe
from utterd.engines.hibari.engine import HibariEngine
from utterd.engines.protocol import CancelledByCallerError, CancelToken, EngineOptions, Utterance
from utterd.errors import ConfigurationError, EmptyTextError

SENTENCES = (
    "The rain stopped at noon.",
    "Two boats left the quiet harbour.",
    "Somebody had painted the old gate green.",
    "Nobody knew why.",
    "They asked the baker, who only smiled.",
    "In the evening it rained again.",
)
UTTERANCE = Utterance(text=SENTENCES[0], voice="heart", language="en", speed=1.0, seed=7)


def test_speaks_float32_mono(engine: HibariEngine):
    """Samples are finite, audible, and within full scale or close to it."""
    pcm = engine.speak(UTTERANCE, CancelToken()).pcm
    assert (pcm.dtype, pcm.ndim) == (np.float32, 1)
    assert np.isfinite(pcm).all()
    assert 0.05 < np.abs(pcm).max() < 1.5
    assert 1.0 < pcm.size / describe().sample_rate_hz < 4.0


def test_the_seed_decides_the_samples(engine: HibariEngine):
    """Same seed, same bits, whatever was spoken between; another seed, other bits."""
    first = engine.speak(UTTERANCE, CancelToken()).pcm
    engine.speak(replace(UTTERANCE, text=SENTENCES[1]), CancelToken())
    np.testing.assert_array_equal(engine.speak(UTTERANCE, CancelToken()).pcm, first)
    other = engine.speak(replace(UTTERANCE, seed=8), CancelToken()).pcm
    assert not np.array_equal(other, first)


@pytest.mark.parametrize("speed", [0.5, 1.5, 2.0])
def test_speed_changes_every_sentence(engine: HibariEngine, speed: float):
    """Each sentence takes its length divided by the speed, or nearly so (A-21)."""
    for sentence in SENTENCES:
        plain = replace(UTTERANCE, text=sentence)
        usual = engine.speak(plain, CancelToken()).pcm.size
        changed = engine.speak(replace(plain, speed=speed), CancelToken()).pcm.size
        assert changed * speed / usual == pytest.approx(1.0, abs=0.2)


def test_a_segment_of_numbers_is_spoken_whole(engine: HibariEngine):
    """More phonemes than the model takes at once are spoken in pieces."""
    digits = " ".join("1234567890" * 12)
    half = " ".join("1234567890" * 6)
    whole = engine.speak(replace(UTTERANCE, text=digits), CancelToken()).pcm.size
    assert whole > 1.8 * engine.speak(replace(UTTERANCE, text=half), CancelToken()).pcm.size


@pytest.mark.parametrize("text", ["", "ก", "🙂"])
def test_refuses_what_has_no_sound(engine: HibariEngine, text: str):
    """No samples would be silence that nobody asked for."""
    with pytest.raises(EmptyTextError):
        engine.speak(replace(UTTERANCE, text=text), CancelToken())


def test_a_cancelled_utterance_is_not_spoken(engine: HibariEngine):
    """The token is asked before each piece."""
    token = CancelToken()
    token.cancel()
    with pytest.raises(CancelledByCallerError):
        engine.speak(UTTERANCE, token)


def test_the_description_is_stable_and_true(engine: HibariEngine):
    """Two descriptions are equal, and the digest is one of SHA-256."""
    info = describe()
    assert info == describe()
    assert (info.name, info.sample_rate_hz) == ("hibari", 24_000)
    assert [voice.name for voice in info.voices] == ["heart"]
    assert len(bytes.fromhex(info.bundle)) == 32
    assert engine.speak(UTTERANCE, CancelToken()).pcm.size


def test_a_bundle_is_refused():
    """A bundle in the settings was meant for another engine, so the daemon says so."""
    with pytest.raises(ConfigurationError, match=r"set engine\.name"):
        describe(EngineOptions(bundle=Path("/models/one")))
