"""Every output decodes to what was spoken, and the facts told about it are true."""

import hashlib
import struct

import numpy as np
import pytest

from utterd.audio.encode import encode
from utterd.audio.formats import FORMATS, OutputSpec, legal_bitrates_kbps, resolve_output
from utterd.audio.pcm import peak
from utterd.errors import InvalidAudioError
from utterd_schemas.audio import AudioFormat

NATIVE_HZ = 24_000
LINEAR = (AudioFormat.WAV, AudioFormat.FLAC, AudioFormat.PCM)
ODD_RATES_HZ = (8_000, 11_025, 12_345, 16_000, 22_050, 24_000, 32_000, 44_100, 47_999, 48_000)

EVERY_OUTPUT = [
    pytest.param(audio_format, rate_hz, id=f"{audio_format}-{rate_hz}")
    for audio_format, traits in FORMATS.items()
    for rate_hz in traits.sample_rates_hz or ODD_RATES_HZ
]
EVERY_BITRATE = [
    pytest.param(audio_format, rate_hz, kbps, id=f"{audio_format}-{rate_hz}-{kbps}")
    for audio_format in (AudioFormat.MP3, AudioFormat.OPUS)
    for rate_hz in FORMATS[audio_format].sample_rates_hz
    for kbps in legal_bitrates_kbps(audio_format, rate_hz)
]


def output(audio_format, rate_hz=NATIVE_HZ, kbps=None):
    return resolve_output(
        audio_format, sample_rate_hz=rate_hz, bitrate_kbps=kbps, native_rate_hz=NATIVE_HZ
    )


@pytest.mark.parametrize(("audio_format", "rate_hz"), EVERY_OUTPUT)
def test_decodes_to_what_was_spoken(tone, decode, pitch, audio_format, rate_hz):
    """At every legal rate the file has the rate asked for, the exact length and the pitch."""
    pcm = tone(0.3, NATIVE_HZ, pitch_hz=440)
    encoded = encode(pcm, NATIVE_HZ, output(audio_format, rate_hz))
    decoded, decoded_hz = decode(encoded)
    assert decoded_hz == encoded.sample_rate_hz == rate_hz
    assert decoded.shape == (round(0.3 * rate_hz),)
    assert pitch(decoded, rate_hz) == pytest.approx(440, rel=0.005)
    assert peak(decoded[rate_hz // 10 : -rate_hz // 10]) == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(("audio_format", "rate_hz"), EVERY_OUTPUT)
def test_facts_are_those_of_the_file(tone, decode, audio_format, rate_hz):
    """Frames, duration and hash are those of the bytes."""
    encoded = encode(tone(0.2, NATIVE_HZ), NATIVE_HZ, output(audio_format, rate_hz))
    decoded, _ = decode(encoded)
    assert encoded.frames == decoded.size
    assert encoded.duration_s == decoded.size / rate_hz
    assert encoded.sha256 == hashlib.sha256(encoded.data).hexdigest()
    assert encoded.extension == FORMATS[audio_format].extension


@pytest.mark.parametrize(("audio_format", "rate_hz", "kbps"), EVERY_BITRATE)
def test_padding_is_not_decoded(tone, decode, audio_format, rate_hz, kbps):
    """At every legal bitrate the encoder's padding is marked, so that no decoder plays it."""
    encoded = encode(tone(0.1, rate_hz), rate_hz, OutputSpec(audio_format, rate_hz, kbps))
    decoded, _ = decode(encoded)
    assert encoded.frames == decoded.size == round(0.1 * rate_hz)


@pytest.mark.parametrize("audio_format", AudioFormat)
@pytest.mark.parametrize("count", [1, 2, 575, 577, 24_001])
def test_odd_lengths_are_exact(decode, audio_format, count):
    """No length is rounded to a codec's frames or to the second."""
    pcm = np.full(count, 0.25, np.float32)
    encoded = encode(pcm, NATIVE_HZ, output(audio_format))
    assert encoded.frames == decode(encoded)[0].size == count


@pytest.mark.parametrize(
    ("audio_format", "rate_hz", "kbps"),
    [
        (AudioFormat.MP3, 8_000, 16),
        (AudioFormat.MP3, 16_000, 32),
        (AudioFormat.MP3, 24_000, 48),
        (AudioFormat.MP3, 44_100, 128),
        (AudioFormat.OPUS, 8_000, 16),
        (AudioFormat.OPUS, 16_000, 32),
        (AudioFormat.OPUS, 24_000, 48),
        (AudioFormat.OPUS, 48_000, 64),
    ],
)
def test_bitrate_is_met(speech, audio_format, rate_hz, kbps):
    """Over ten seconds of speech the whole file has the bitrate asked for within 5 %."""
    encoded = encode(speech, NATIVE_HZ, output(audio_format, rate_hz, kbps))
    assert encoded.duration_s == 10.0
    assert len(encoded.data) * 8 / 10 == pytest.approx(kbps * 1000, rel=0.05)


def test_wav_sizes_are_right(tone):
    """The sizes in the RIFF and data chunks are those of the bytes that follow."""
    data = encode(tone(0.25, NATIVE_HZ), NATIVE_HZ, output(AudioFormat.WAV)).data
    assert struct.unpack_from("<4sI4s", data) == (b"RIFF", len(data) - 8, b"WAVE")
    chunk = data.index(b"data")
    assert struct.unpack_from("<I", data, chunk + 4) == (len(data) - chunk - 8,)
    assert len(data) - chunk - 8 == 2 * 6_000


@pytest.mark.parametrize("audio_format", AudioFormat)
def test_loud_samples_never_wrap(decode, tone, audio_format):
    """A signal beyond full scale gives no step that the signal doesn't have, in any format."""
    loud = tone(0.5, NATIVE_HZ, amplitude=1.3)
    decoded, _ = decode(encode(loud, NATIVE_HZ, output(audio_format)))
    inner = decoded[1_200:-1_200]
    assert 0.8 < peak(inner) <= 1.0
    assert peak(np.diff(inner)) < 0.12


@pytest.mark.parametrize("audio_format", [*LINEAR, AudioFormat.ULAW, AudioFormat.ALAW])
def test_full_scale_keeps_its_sign(decode, audio_format):
    """+1.0 is the highest step and -1.0 the lowest."""
    edges = np.array([1.0, -1.0, 1.0, -1.0], np.float32)
    decoded, _ = decode(encode(edges, NATIVE_HZ, output(audio_format)))
    assert decoded * edges == pytest.approx(np.full(4, abs(decoded[0])))
    assert abs(decoded[0]) > 0.85


@pytest.mark.parametrize("audio_format", LINEAR)
def test_linear_formats_are_exact(decode, audio_format):
    """Formats of 16-bit samples hold the nearest step to each sample."""
    pcm = np.linspace(-1.0, 1.0, 4_001, dtype=np.float32)
    decoded, _ = decode(encode(pcm, NATIVE_HZ, output(audio_format)))
    assert peak(decoded * 32_768 - pcm * 32_767) <= 0.51


def test_pcm_is_little_endian():
    """Headerless samples are what their content type says."""
    encoded = encode(np.full(3, 0.5, np.float32), NATIVE_HZ, output(AudioFormat.PCM))
    assert struct.unpack("<3h", encoded.data) == (16_384,) * 3
    assert "endian=little" in encoded.content_type


def test_opus_takes_a_22050_hz_engine(tone, decode):
    """Speech at a rate that Opus refuses is raised to the next rate that it takes."""
    spec = resolve_output(
        AudioFormat.OPUS, sample_rate_hz=None, bitrate_kbps=None, native_rate_hz=22_050
    )
    encoded = encode(tone(0.5, 22_050), 22_050, spec)
    decoded, decoded_hz = decode(encoded)
    assert (decoded_hz, decoded.size) == (24_000, 12_000)


def test_long_vorbis_is_written_whole(tone):
    """Five minutes of Vorbis, which crash the interpreter in one write, arrive whole."""
    encoded = encode(tone(300, 8_000), 8_000, output(AudioFormat.VORBIS, 8_000))
    assert encoded.frames == 300 * 8_000


@pytest.mark.parametrize("audio_format", AudioFormat)
def test_empty_audio_is_refused(audio_format):
    """No file is made of no samples, nor of so few that the target rate has none."""
    for count in (0, 1):
        with pytest.raises(InvalidAudioError, match="no audio"):
            encode(np.zeros(count, np.float32), 48_000, output(audio_format, 8_000))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_audio_is_refused(tone, value):
    """A sample that is no number is never written."""
    pcm = tone(0.1, NATIVE_HZ)
    pcm[3] = value
    with pytest.raises(InvalidAudioError, match="not finite"):
        encode(pcm, NATIVE_HZ, output(AudioFormat.WAV))


def test_output_without_its_bitrate_is_a_bug(tone):
    """A hand-made output that lacks the codec's bitrate is refused with the way to make one."""
    with pytest.raises(ValueError, match="resolve_output"):
        encode(tone(0.1, NATIVE_HZ), NATIVE_HZ, OutputSpec(AudioFormat.MP3, NATIVE_HZ, None))
