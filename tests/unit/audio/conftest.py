"""Signals to feed the audio chain with, and a decoder that is not part of it."""

import io

import numpy as np
import pytest
import soundfile
from hibari import Hibari


@pytest.fixture
def tone():
    """Make a sine of a given pitch, length, rate and amplitude."""

    def make(duration_s, sample_rate_hz, *, pitch_hz=220.0, amplitude=0.5):
        time_s = np.arange(round(duration_s * sample_rate_hz)) / sample_rate_hz
        return (amplitude * np.sin(2 * np.pi * pitch_hz * time_s)).astype(np.float32)

    return make


@pytest.fixture
def silence():
    """Make zeros of a given length and rate."""

    def make(duration_s, sample_rate_hz):
        return np.zeros(round(duration_s * sample_rate_hz), np.float32)

    return make


@pytest.fixture
def pitch():
    """Measure where the spectrum of a signal has its peak, in Hz."""

    def measure(pcm, sample_rate_hz):
        spectrum = np.abs(np.fft.rfft(pcm * np.hanning(pcm.size), 16 * pcm.size))
        return np.argmax(spectrum) * sample_rate_hz / (16 * pcm.size)

    return measure


@pytest.fixture
def decode():
    """Decode what `encode` made, into float64 samples and the rate that the bytes tell."""

    def read(encoded):
        raw = {
            "pcm": {"subtype": "PCM_16", "endian": "LITTLE"},
            "ulaw": {"subtype": "ULAW"},
            "alaw": {"subtype": "ALAW"},
        }.get(encoded.extension)
        if raw is None:
            return soundfile.read(io.BytesIO(encoded.data))
        told_hz = int(encoded.content_type.split("rate=")[1].split(";")[0])
        return soundfile.read(
            io.BytesIO(encoded.data), samplerate=told_hz, channels=1, format="RAW", **raw
        )

    return read


@pytest.fixture(scope="session")
def voice():
    """Load the packaged voice, which speaks at 24 kHz."""
    return Hibari()


@pytest.fixture(scope="session")
def speech(voice):
    """Speak for ten seconds with pauses, at 24 kHz."""
    spoken = voice(
        "The harbour was quiet that morning, and only a few gulls circled above the boats. "
        "She asked him twice whether the train to Geneva had already left, but he didn't know. "
        "Seventeen boxes of fresh oranges arrived on Thursday; nobody remembered ordering them.",
        seed=1,
    )
    return spoken[: 10 * 24_000]
