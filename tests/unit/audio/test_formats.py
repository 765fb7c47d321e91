"""Outputs are settled once, and only legal ones come out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from utterd.audio.formats import FORMATS, OutputSpec, legal_bitrates_kbps, resolve_output
from utterd.errors import UnsupportedOutputError
from utterd_schemas.audio import AudioFormat

NATIVE_HZ = 24_000


def resolve(audio_format, *, rate_hz=None, kbps=None, native_hz=NATIVE_HZ):
    return resolve_output(
        audio_format, sample_rate_hz=rate_hz, bitrate_kbps=kbps, native_rate_hz=native_hz
    )


def test_every_format_has_traits():
    """Each format of the contract stands in the table, with an extension of its own."""
    assert set(FORMATS) == set(AudioFormat)
    assert len({traits.extension for traits in FORMATS.values()}) == len(AudioFormat)


@pytest.mark.parametrize(
    ("audio_format", "native_hz", "expected_hz"),
    [
        (AudioFormat.WAV, 22_050, 22_050),
        (AudioFormat.WAV, 96_000, 48_000),
        (AudioFormat.ULAW, 4_000, 8_000),
        (AudioFormat.OPUS, 22_050, 24_000),
        (AudioFormat.OPUS, 24_000, 24_000),
        (AudioFormat.OPUS, 44_100, 48_000),
        (AudioFormat.MP3, 20_000, 22_050),
        (AudioFormat.MP3, 96_000, 48_000),
    ],
)
def test_absent_rate_becomes_native_or_next_legal(audio_format, native_hz, expected_hz):
    """An absent rate becomes the engine's own, or the next legal one, or the highest."""
    assert resolve(audio_format, native_hz=native_hz).sample_rate_hz == expected_hz


@settings(deadline=None)
@given(audio_format=st.sampled_from(AudioFormat), native_hz=st.integers(1_000, 200_000))
def test_absent_choices_always_resolve(audio_format, native_hz):
    """What the defaults choose is legal when it is asked for, whatever the engine's rate."""
    spec = resolve(audio_format, native_hz=native_hz)
    assert spec == resolve(audio_format, rate_hz=spec.sample_rate_hz, kbps=spec.bitrate_kbps)
    assert spec.sample_rate_hz >= min(native_hz, 48_000)


@pytest.mark.parametrize("audio_format", AudioFormat)
def test_legal_rate_is_taken_as_asked(audio_format):
    """A legal rate is never changed."""
    for rate_hz in FORMATS[audio_format].sample_rates_hz or (8_000, 12_345, 48_000):
        assert resolve(audio_format, rate_hz=rate_hz).sample_rate_hz == rate_hz


def test_illegal_rate_lists_legal_ones():
    """A rate that the codec can't carry is refused, with the legal ones in message and detail."""
    with pytest.raises(UnsupportedOutputError, match="12000, 16000, 24000 or 48000") as refusal:
        resolve(AudioFormat.OPUS, rate_hz=22_050)
    assert refusal.value.detail == {
        "legal_sample_rates_hz": [8_000, 12_000, 16_000, 24_000, 48_000]
    }


@pytest.mark.parametrize("rate_hz", [0, 7_999, 48_001, -1])
def test_rate_outside_range_names_the_range(rate_hz):
    """A format that takes every rate of a range names its ends in the refusal."""
    with pytest.raises(UnsupportedOutputError, match="8000 to 48000") as refusal:
        resolve(AudioFormat.WAV, rate_hz=rate_hz)
    assert refusal.value.detail == {"min_sample_rate_hz": 8_000, "max_sample_rate_hz": 48_000}


@pytest.mark.parametrize("audio_format", [AudioFormat.MP3, AudioFormat.OPUS])
def test_legal_bitrate_is_taken_as_asked(audio_format):
    """Every listed bitrate can be asked for at its rate."""
    for rate_hz in FORMATS[audio_format].sample_rates_hz:
        for kbps in legal_bitrates_kbps(audio_format, rate_hz):
            spec = resolve(audio_format, rate_hz=rate_hz, kbps=kbps)
            assert spec == OutputSpec(audio_format, rate_hz, kbps)


@pytest.mark.parametrize(
    ("audio_format", "rate_hz", "kbps"),
    [
        (AudioFormat.MP3, 24_000, 8),
        (AudioFormat.MP3, 24_000, 65),
        (AudioFormat.MP3, 48_000, 32),
        (AudioFormat.MP3, 8_000, 80),
        (AudioFormat.OPUS, 16_000, 48),
        (AudioFormat.OPUS, 24_000, 512),
    ],
)
def test_illegal_bitrate_lists_legal_ones(audio_format, rate_hz, kbps):
    """A bitrate that the codec can't hold at the rate is refused with those that it can."""
    with pytest.raises(UnsupportedOutputError, match="64") as refusal:
        resolve(audio_format, rate_hz=rate_hz, kbps=kbps)
    legal_kbps = refusal.value.detail["legal_bitrates_kbps"]
    assert legal_kbps == list(legal_bitrates_kbps(audio_format, rate_hz))
    assert kbps not in legal_kbps


def test_bitrate_needs_a_codec_that_has_one():
    """A bitrate for a format without a choice of it is refused, naming the formats that have."""
    with pytest.raises(UnsupportedOutputError, match="mp3 or opus") as refusal:
        resolve(AudioFormat.FLAC, kbps=64)
    assert refusal.value.detail == {"formats_with_bitrate": ["mp3", "opus"]}


@pytest.mark.parametrize(
    ("audio_format", "content_type"),
    [
        (AudioFormat.WAV, "audio/wav"),
        (AudioFormat.OPUS, "audio/ogg; codecs=opus"),
        (AudioFormat.PCM, "audio/pcm; rate=24000; channels=1; bits=16; endian=little"),
        (AudioFormat.ULAW, "audio/PCMU; rate=24000"),
        (AudioFormat.ALAW, "audio/PCMA; rate=24000"),
    ],
)
def test_content_type_tells_what_the_bytes_do_not(audio_format, content_type):
    """Headerless formats carry their rate in the content type."""
    assert resolve(audio_format).content_type == content_type
