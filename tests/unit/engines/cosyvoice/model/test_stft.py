import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.engines.cosyvoice.model.stft import Stft


@given(
    frames=st.integers(8, 60),
    size_hop=st.sampled_from([(16, 4), (8, 2), (32, 8), (16, 8)]),
    seed=st.integers(0, 2**32),
)
def test_the_inverse_undoes_it(frames: int, size_hop: tuple[int, int], seed: int):
    """Samples that are transformed and back are the same samples."""
    size, hop = size_hop
    samples = np.random.default_rng(seed).standard_normal(frames * hop, dtype=np.float32)
    stft = Stft(size, hop)

    real, imaginary = np.split(stft.forward(samples), 2)
    back = stft.inverse(np.hypot(real, imaginary), np.arctan2(imaginary, real))

    assert back.shape == samples.shape
    assert np.abs(back - samples).max() < 1e-5


def test_it_is_the_transform_of_numpy():
    """A frame is the FFT of the windowed samples around it."""
    samples = np.random.default_rng(0).standard_normal(64, dtype=np.float32)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(16) / 16)

    spectrum = Stft(16, 4).forward(samples)

    wanted = np.fft.rfft(samples[24:40] * window)
    # Frame 8 is centred at sample 32.
    assert spectrum[:9, 8] == pytest.approx(wanted.real, abs=1e-5)
    assert spectrum[9:, 8] == pytest.approx(wanted.imag, abs=1e-5)
