"""Implausible speech is found, and good speech is let through."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from utterd.audio.gate import judge
from utterd.errors import InvalidAudioError

RATE_HZ = 24_000


@pytest.fixture
def sentence(tone, silence):
    """A plausible sentence of about 40 characters: four words of sound in 2.6 s."""
    word, gap = tone(0.5, RATE_HZ), silence(0.12, RATE_HZ)
    return np.concatenate([gap, *[word, gap] * 4])


def reasons(pcm, *, spoken_chars=40, speed=1.0):
    return judge(pcm, sample_rate_hz=RATE_HZ, spoken_chars=spoken_chars, speed=speed).reasons


def test_plausible_speech_is_ok(sentence):
    """Speech of a fitting length with ordinary gaps passes, with its figures."""
    quality = judge(sentence, sample_rate_hz=RATE_HZ, spoken_chars=40, speed=1.0)
    assert (quality.verdict, quality.reasons) == ("ok", ())
    assert quality.duration_s == pytest.approx(2.6)
    assert quality.peak == pytest.approx(0.5, abs=1e-4)
    assert quality.silence_ratio == pytest.approx(0.6 / 2.6, abs=0.01)
    assert quality.clipped_ratio == 0.0


@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("text", ["Hi.", "No", "Stop!", "It's 1999.", "Yes, yes, yes!"])
def test_packaged_voice_passes(voice, text, speed):
    """What the packaged voice speaks of short texts is plausible at every speed."""
    pcm = voice(text, seed=1, speed=speed)
    spoken_chars = sum(char.isalnum() for char in text)
    assert reasons(pcm, spoken_chars=spoken_chars, speed=speed) == ()


def test_packaged_voice_passes_at_length(speech):
    """Ten seconds of several sentences are plausible, except that the fixture cuts the last."""
    assert set(reasons(speech, spoken_chars=170)) <= {"cut_tail"}


def test_missing_words_are_found(sentence):
    """Fewer than 30 ms for a character is too short, and speed shortens what is expected."""
    assert reasons(sentence, spoken_chars=100) == ("too_short",)
    assert reasons(sentence, spoken_chars=100, speed=2.0) == ()


def test_runaway_is_found(sentence):
    """More than 3 s and 0.6 s for a character is too long, and half the speed allows twice."""
    pcm = np.tile(sentence, 4)
    assert reasons(pcm, spoken_chars=8) == ("too_long",)
    assert reasons(pcm, spoken_chars=8, speed=0.5) == ()


@pytest.mark.parametrize("amplitude", [0.0, 0.0005])
def test_silence_is_found(tone, amplitude):
    """Digital silence and a noise floor are silent, and nothing else is said of them."""
    assert reasons(tone(2.0, RATE_HZ, amplitude=amplitude)) == ("silent",)


def test_no_samples_are_silent_and_short():
    """An engine that returned no samples said nothing of its text."""
    assert reasons(np.zeros(0, np.float32)) == ("silent", "too_short")


def test_mostly_silence_is_found(tone, silence):
    """A word in a sea of silence is suspect."""
    pcm = np.concatenate([silence(1.0, RATE_HZ), tone(0.3, RATE_HZ), silence(1.0, RATE_HZ)])
    assert reasons(pcm) == ("mostly_silent",)


def test_long_silence_is_found(tone, silence):
    """More than two seconds without a sound is suspect in a clip of any length."""
    pcm = np.concatenate([tone(4.0, RATE_HZ), silence(2.5, RATE_HZ), tone(0.5, RATE_HZ)])
    assert "long_silence" in reasons(np.concatenate([pcm, silence(0.1, RATE_HZ)]))


def test_clipping_is_found(sentence):
    """Flattened peaks are suspect, a single sample at full scale is not."""
    flattened = np.clip(sentence * 4, -1.0, 1.0)
    assert reasons(flattened) == ("clipped",)
    touched = sentence.copy()
    touched[RATE_HZ // 2] = 1.0
    assert reasons(touched) == ()


def test_burst_is_found(sentence):
    """A sample far beyond full scale is no voice."""
    sentence[RATE_HZ // 2] = 3.0
    assert reasons(sentence) == ("overdriven",)


def test_cut_tail_is_found(sentence):
    """A clip that ends at full level was cut within a word."""
    assert reasons(sentence[: -round(0.3 * RATE_HZ)]) == ("cut_tail",)


def test_non_finite_samples_are_refused(sentence):
    """A sample that is no number is a fault, not a quality."""
    sentence[0] = np.inf
    with pytest.raises(InvalidAudioError):
        reasons(sentence)


@settings(deadline=None)
@given(
    pcm=arrays(
        np.float32, st.integers(0, 300), elements=st.floats(-(2.0**100), 2.0**100, width=32)
    ),
    spoken_chars=st.integers(0, 1_000),
    speed=st.floats(0.5, 2.0),
)
def test_figures_stay_in_their_ranges(pcm, spoken_chars, speed):
    """Any finite samples get a verdict that agrees with its reasons, and ratios from 0 to 1."""
    quality = judge(pcm, sample_rate_hz=RATE_HZ, spoken_chars=spoken_chars, speed=speed)
    assert (quality.verdict == "suspect") == bool(quality.reasons)
    assert 0.0 <= quality.silence_ratio <= 1.0
    assert 0.0 <= quality.clipped_ratio <= 1.0
