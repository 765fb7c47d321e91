"""The rate changes; pitch, length and full scale do not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from utterd.audio.pcm import peak
from utterd.audio.resample import resample

RATES_HZ = (8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000)

rates_hz = st.one_of(st.sampled_from(RATES_HZ), st.integers(8_000, 48_000))


def test_equal_rates_change_nothing(tone):
    """The same rate gives the same samples."""
    pcm = tone(0.1, 24_000)
    assert resample(pcm, 24_000, 24_000) is pcm


@settings(deadline=None)
@given(count=st.integers(0, 3_000), source_hz=rates_hz, target_hz=rates_hz)
def test_length_is_exact(count, source_hz, target_hz):
    """The length is the rounded product, whatever the rates."""
    pcm = np.full(count, 0.25, np.float32)
    resampled = resample(pcm, source_hz, target_hz)
    assert resampled.shape == (round(count * target_hz / source_hz),)
    assert resampled.dtype == np.float32


@pytest.mark.parametrize("target_hz", RATES_HZ)
def test_pitch_is_kept(tone, pitch, target_hz):
    """A tone keeps its pitch and its level at every rate."""
    resampled = resample(tone(0.5, 24_000, pitch_hz=440), 24_000, target_hz)
    assert pitch(resampled, target_hz) == pytest.approx(440, rel=0.002)
    assert peak(resampled[target_hz // 10 : -target_hz // 10]) == pytest.approx(0.5, rel=0.01)


def test_no_aliases(tone):
    """A tone above half of the target's rate disappears instead of folding down."""
    resampled = resample(tone(0.5, 24_000, pitch_hz=6_000), 24_000, 8_000)
    assert peak(resampled[800:-800]) < 10 ** (-80 / 20)


def test_overshoot_is_limited():
    """A full-scale square wave, which overshoots in every filter, stays within full scale."""
    square = np.where(np.arange(12_000) // 60 % 2, 1.0, -1.0).astype(np.float32)
    resampled = resample(square, 24_000, 16_000)
    assert 0.9 < peak(resampled) <= 1.0
