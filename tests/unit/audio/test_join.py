"""Clips become one recording, with the pauses asked for and no click."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from utterd.audio.join import MAX_INNER_SILENCE_S, Clip, Span, join
from utterd.audio.pcm import peak
from utterd.errors import InvalidAudioError

RATE_HZ = 24_000


def largest_step(pcm):
    return float(np.abs(np.diff(pcm)).max())


def test_pauses_come_with_the_clips(tone, silence):
    """Each pause lasts as asked, whatever silence the engine left around the words."""
    word = tone(0.4, RATE_HZ)
    padded = np.concatenate([silence(0.3, RATE_HZ), word, silence(0.4, RATE_HZ)])
    joined = join([Clip(padded, 0.25), Clip(padded, 0.6), Clip(padded, 0.0)], RATE_HZ)
    gaps_s = [
        after.start_s - before.end_s
        for before, after in zip(joined.spans, joined.spans[1:], strict=False)
    ]
    assert gaps_s == pytest.approx([0.25, 0.6], abs=1 / RATE_HZ)


def test_spans_hold_the_words(tone):
    """The sound of a clip lies in its span, and outside of the spans is silence."""
    clips = [Clip(tone(0.3, RATE_HZ), 0.2), Clip(tone(0.5, RATE_HZ), 0.2)]
    joined = join(clips, RATE_HZ)
    outside = joined.pcm.copy()
    for span, clip in zip(joined.spans, clips, strict=True):
        start, end = round(span.start_s * RATE_HZ), round(span.end_s * RATE_HZ)
        assert end - start == clip.pcm.size
        assert np.abs(joined.pcm[start:end]).max() == pytest.approx(0.5, rel=1e-3)
        outside[start:end] = 0.0
    assert not outside.any()


@settings(deadline=None)
@given(
    durations_s=st.lists(st.floats(0.01, 0.3), min_size=1, max_size=5),
    pauses_s=st.lists(st.floats(0.0, 0.5), min_size=5, max_size=5),
    rate_hz=st.sampled_from([8_000, 22_050, 24_000, 48_000]),
)
def test_spans_are_ordered_and_inside(durations_s, pauses_s, rate_hz):
    """Spans follow each other within the recording, which starts and ends at zero."""
    clips = [
        Clip(np.full(round(duration_s * rate_hz), 0.5, np.float32), pause_s)
        for duration_s, pause_s in zip(durations_s, pauses_s, strict=False)
    ]
    joined = join(clips, rate_hz)
    edges_s = [edge_s for span in joined.spans for edge_s in (span.start_s, span.end_s)]
    assert edges_s == sorted(edges_s)
    assert edges_s[-1] <= joined.pcm.size / rate_hz
    assert joined.pcm[0] == joined.pcm[-1] == 0.0


@pytest.mark.parametrize("pause_s", [0.0, 0.2])
def test_no_click_at_a_join(tone, pause_s):
    """Clips cut in mid-wave meet in steps no larger than those inside of them."""
    first = tone(0.30113, RATE_HZ, pitch_hz=300)
    second = -tone(0.30113, RATE_HZ, pitch_hz=300)[::-1].copy()
    assert abs(first[-1]) > 0.2
    joined = join([Clip(first, pause_s), Clip(second, 0.0)], RATE_HZ)
    assert largest_step(joined.pcm) <= max(largest_step(first), largest_step(second)) * 1.001


def test_long_inner_silence_is_capped(tone, silence):
    """A silence that the engine slipped in is shortened without a click."""
    word = tone(0.3, RATE_HZ, pitch_hz=300)
    pcm = np.concatenate([word, silence(3.0, RATE_HZ), word])
    joined = join([Clip(pcm, 0.0)], RATE_HZ)
    expected_s = 2 * 0.3 + MAX_INNER_SILENCE_S
    assert joined.spans[0].end_s - joined.spans[0].start_s == pytest.approx(expected_s, abs=0.01)
    assert largest_step(joined.pcm) <= largest_step(word) * 1.001


def test_short_inner_silence_is_kept(tone, silence):
    """A pause within a sentence keeps its length."""
    pcm = np.concatenate([tone(0.3, RATE_HZ), silence(0.6, RATE_HZ), tone(0.3, RATE_HZ)])
    (span,) = join([Clip(pcm, 0.0)], RATE_HZ).spans
    assert span.end_s - span.start_s == pytest.approx(1.2, abs=1e-3)


def test_edges_are_quiet_whatever_the_engine_left(tone, silence):
    """Static after the last word is gone: the last 40 ms and the first 5 ms are silent."""
    rng = np.random.default_rng(0)
    static = (0.002 * rng.standard_normal(RATE_HZ // 25)).astype(np.float32)
    noisy = np.concatenate([tone(0.4, RATE_HZ), silence(0.2, RATE_HZ), static])
    cut_off = tone(0.4003, RATE_HZ)
    for pcm in (noisy, cut_off):
        joined = join([Clip(pcm, 0.0)], RATE_HZ).pcm
        floor = peak(joined) * 10 ** (-35 / 20)
        assert peak(joined[-RATE_HZ // 25 :]) < floor
        assert peak(joined[: RATE_HZ // 200]) < floor
        assert joined[0] == joined[-1] == 0.0


def test_loudness_between_clips_is_kept(tone):
    """One overshooting clip lowers all clips alike."""
    clips = [Clip(tone(0.2, RATE_HZ, amplitude=a), 0.1) for a in (2.0, 0.5)]
    joined = join(clips, RATE_HZ)
    loud, soft = (
        peak(joined.pcm[round(span.start_s * RATE_HZ) : round(span.end_s * RATE_HZ)])
        for span in joined.spans
    )
    assert loud == pytest.approx(1.0, abs=1e-4)
    assert soft == pytest.approx(0.25, abs=1e-3)


def test_silent_clip_has_an_empty_span(tone, silence):
    """A clip without sound takes no time, and its pause is kept."""
    joined = join([Clip(silence(1.0, RATE_HZ), 0.5), Clip(tone(0.2, RATE_HZ), 0.0)], RATE_HZ)
    assert joined.spans == (
        Span(0.01, 0.01),
        Span(pytest.approx(0.51), pytest.approx(0.71)),
    )


@pytest.mark.parametrize("clips", [[], [Clip(np.zeros(9_600, np.float32), 0.3)]])
def test_nothing_audible_is_refused(clips):
    """A recording in which nothing can be heard is invalid."""
    with pytest.raises(InvalidAudioError, match="no audible sound"):
        join(clips, RATE_HZ)


def test_non_finite_clip_is_refused(tone):
    """A sample that is no number is never joined."""
    pcm = tone(0.2, RATE_HZ)
    pcm[100] = np.nan
    with pytest.raises(InvalidAudioError, match="not finite"):
        join([Clip(pcm, 0.0)], RATE_HZ)
