"""Samples are checked, limited, trimmed and faded without a trace of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from utterd.audio.pcm import (
    audible_frames,
    check_pcm,
    fade_edges,
    limit_peak,
    peak,
    runs,
    to_int16,
    trim_silence,
)
from utterd.errors import InvalidAudioError

RATE_HZ = 24_000

samples = arrays(
    np.float32, st.integers(0, 200), elements=st.floats(-(2.0**100), 2.0**100, width=32)
)


def test_good_samples_pass_unchanged(tone):
    """Float32 mono comes back as it is."""
    pcm = tone(0.1, RATE_HZ)
    assert np.array_equal(check_pcm(pcm), pcm)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_samples_are_refused(tone, value):
    """A single sample that is no number makes the audio invalid."""
    pcm = tone(0.1, RATE_HZ)
    pcm[7] = value
    with pytest.raises(InvalidAudioError) as refusal:
        check_pcm(pcm)
    assert refusal.value.detail == {"non_finite": 1}


@pytest.mark.parametrize(
    "pcm", [np.zeros(8), np.zeros(8, np.int16), np.zeros((8, 2), np.float32), np.float32(0)]
)
def test_other_arrays_are_refused(pcm):
    """Other types and shapes than float32 mono are invalid."""
    with pytest.raises(InvalidAudioError, match="float32 mono"):
        check_pcm(pcm)


@settings(deadline=None)
@given(samples, st.floats(0.1, 1.0))
def test_peak_is_limited(pcm, ceiling):
    """No sample stays above the ceiling, and none changes its sign."""
    limited = limit_peak(pcm, ceiling)
    assert peak(limited) <= np.float32(ceiling)
    assert np.all(limited * np.sign(pcm) >= 0)


def test_limiting_keeps_the_waveform(tone):
    """Limiting scales all samples alike; what is below the ceiling already is not touched."""
    loud = tone(0.1, RATE_HZ, amplitude=1.3)
    assert np.allclose(limit_peak(loud), loud / peak(loud), atol=1e-6)
    quiet = tone(0.1, RATE_HZ)
    assert limit_peak(quiet) is quiet


def test_int16_clamps_and_rounds():
    """Full scale and beyond is clamped, and values between two steps go to the nearer one."""
    pcm = np.array([1.0, -1.0, 1.3, -1.3, 1.6 / 32767, -1.6 / 32767, 0.0], np.float32)
    assert to_int16(pcm).tolist() == [32767, -32767, 32767, -32767, 2, -2, 0]


@settings(deadline=None)
@given(samples)
def test_int16_never_wraps(pcm):
    """A sample's sign survives the conversion, however loud the sample is."""
    assert np.all(to_int16(pcm) * np.sign(pcm) >= 0)


@settings(deadline=None)
@given(samples)
def test_faded_edges_are_zero(pcm):
    """Whatever the length, both ends are exactly zero and nothing gets louder."""
    faded = fade_edges(pcm, RATE_HZ)
    assert not faded[:1].any()
    assert not faded[-1:].any()
    assert np.all(np.abs(faded) <= np.abs(pcm))


def test_fades_leave_the_middle_alone(tone):
    """Only the first and last five milliseconds are changed, and the input never."""
    pcm = tone(0.1, RATE_HZ)
    original = pcm.copy()
    faded = fade_edges(pcm, RATE_HZ)
    assert np.array_equal(faded[120:-120], original[120:-120])
    assert np.array_equal(pcm, original)


@settings(deadline=None)
@given(arrays(np.bool_, st.integers(0, 50)))
def test_runs_describe_the_mask(mask):
    """The ranges cover exactly what is true, and touch nowhere."""
    rebuilt = np.zeros_like(mask)
    found = runs(mask)
    for start, stop in found:
        assert start < stop
        rebuilt[start:stop] = True
    assert np.array_equal(rebuilt, mask)
    assert all(found[i][1] < found[i + 1][0] for i in range(len(found) - 1))


def test_silence_is_trimmed_at_both_edges(tone, silence):
    """Edges are cut down to a small margin around what is audible."""
    word = tone(0.5, RATE_HZ)
    pcm = np.concatenate([silence(0.3, RATE_HZ), word, silence(0.44, RATE_HZ)])
    trimmed = trim_silence(pcm, RATE_HZ)
    assert word.size <= trimmed.size <= word.size + 0.05 * RATE_HZ
    assert np.array_equal(np.trim_zeros(trimmed), np.trim_zeros(word))


def test_soft_consonants_survive_the_trim(tone):
    """A final fricative 45 dB below the vowel's peak is speech."""
    fricative = tone(0.12, RATE_HZ, pitch_hz=6_000, amplitude=0.8 * 10 ** (-45 / 20))
    pcm = np.concatenate([tone(0.3, RATE_HZ, amplitude=0.8), fricative])
    assert trim_silence(pcm, RATE_HZ).size == pcm.size


def test_plosive_release_survives_the_trim(tone, silence):
    """A short burst after the closure of a final plosive is speech."""
    burst = tone(0.02, RATE_HZ, pitch_hz=3_000)
    pcm = np.concatenate([tone(0.3, RATE_HZ), silence(0.1, RATE_HZ), burst])
    assert trim_silence(pcm, RATE_HZ).size == pcm.size


@pytest.mark.parametrize("reverse", [False, True])
def test_stray_pop_is_dropped(tone, silence, reverse):
    """A pop that stands apart from the speech goes, at either edge."""
    word, pop = tone(0.3, RATE_HZ), tone(0.02, RATE_HZ, pitch_hz=3_000)
    parts = [word, silence(0.3, RATE_HZ), pop]
    trimmed = trim_silence(np.concatenate(parts[::-1] if reverse else parts), RATE_HZ)
    assert trimmed.size <= word.size + 0.05 * RATE_HZ


def test_lone_short_sound_is_kept(tone, silence):
    """A pop with no speech beside it is all that there is, so it stays."""
    pcm = np.concatenate([silence(0.3, RATE_HZ), tone(0.02, RATE_HZ), silence(0.3, RATE_HZ)])
    assert trim_silence(pcm, RATE_HZ).any()


@pytest.mark.parametrize("amplitude", [0.01, 1e30])
def test_what_is_audible_does_not_depend_on_the_level(tone, silence, amplitude):
    """No square overflows, whatever an engine that has lost its mind gives."""
    pcm = np.concatenate([tone(0.2, RATE_HZ), silence(0.1, RATE_HZ), tone(0.01, RATE_HZ)])
    scaled = pcm * np.float32(amplitude)
    assert np.array_equal(audible_frames(scaled, RATE_HZ), audible_frames(pcm, RATE_HZ))


@pytest.mark.parametrize("amplitude", [0.0, 0.0005])
def test_nothing_audible_leaves_nothing(tone, amplitude):
    """Digital silence and a noise floor trim to no samples."""
    assert trim_silence(tone(0.5, RATE_HZ, amplitude=amplitude), RATE_HZ).size == 0
