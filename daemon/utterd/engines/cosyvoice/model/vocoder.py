"""Mel to waveform: f0, harmonic source, HiFT network, inverse STFT."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.model.pair import Pair, in_turn
from utterd.engines.cosyvoice.model.session import open_session, run
from utterd.engines.cosyvoice.model.stft import Stft

# The original cuts magnitudes here before the inverse STFT.
_MAX_MAGNITUDE = 1e2


@dataclass(frozen=True, slots=True, eq=False)
class SourceNoise:
    """The random part of a harmonic source of n samples.

    Attributes:
        phase: of each harmonic at the start in radians, shape (harmonics,).
        noise: standard normal, shape (harmonics, n).
    """

    phase: NDArray[np.float32]
    noise: NDArray[np.float32]


class Vocoder:
    """Safe to use from several threads."""

    def __init__(self, bundle: Bundle) -> None:
        self._dims = bundle.manifest.vocoder
        self._f0 = open_session(bundle.graph("f0"))
        self._hift = open_session(bundle.graph("hift"))
        self._merge = np.array(bundle.table("source_merge"))
        self._stft = Stft(self._dims.fft_size, self._dims.fft_hop)

    def f0(self, mel: NDArray[np.float32]) -> NDArray[np.float32]:
        """Fundamental frequency in Hz of each frame: (T, mel bins) to (T,)."""
        f0: NDArray[np.float32] = run(self._f0, {"mel": _channels_first(mel)})[0][0]
        return f0

    def source(
        self, f0: NDArray[np.float32], phase: NDArray[np.float32], noise: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """The excitation: sines of f0 and its multiples where it is voiced, and noise.

        Args:
            f0: in Hz, shape (T,).
            phase: of each harmonic at the start in radians, shape (harmonics,). The fundamental
                starts at 0, whatever stands for it.
            noise: standard normal, shape (harmonics, T * samples per frame).

        Returns:
            Shape (T * samples per frame,).
        """
        dims = self._dims
        upsampled = np.repeat(f0, dims.samples_per_frame)
        # Harmonics are multiples of one phase, which in float32 would drift.
        cycles = np.cumsum(upsampled / np.float64(dims.sample_rate_hz))
        voiced = upsampled > dims.voiced_threshold_hz
        noise_level = np.where(voiced, dims.noise_std, dims.sine_amplitude / 3).astype(np.float32)
        merged = np.full(len(upsampled), self._merge[-1], np.float32)
        for harmonic in range(dims.harmonics):
            angle = ((cycles * (harmonic + 1)) % 1 * (2 * np.pi)).astype(np.float32)
            start = phase[harmonic] if harmonic else 0
            sine = np.sin(angle + start) * np.float32(dims.sine_amplitude)
            merged += self._merge[harmonic] * (sine * voiced + noise_level * noise[harmonic])
        return np.tanh(merged)

    def waveform(
        self, mel: NDArray[np.float32], source: NDArray[np.float32], *, pair: Pair = in_turn
    ) -> NDArray[np.float32]:
        """Samples, full scale 1.0: mel (T, mel bins) and source (n,) to (n,).

        `pair` runs the two halves of the network, as `Flow.mel` has it. They are always made apart,
        so that a core that happens to be free changes no sample.
        """
        spectrum = self._spectrum(mel, self._stft.forward(source), pair)
        log_magnitude, phase = np.split(spectrum, 2)
        with np.errstate(over="ignore"):
            magnitude = np.minimum(np.exp(log_magnitude), np.float32(_MAX_MAGNITUDE))
        waveform = self._stft.inverse(magnitude, np.sin(phase))
        return np.clip(waveform, -self._dims.audio_limit, self._dims.audio_limit)

    def _spectrum(
        self, mel: NDArray[np.float32], source: NDArray[np.float32], pair: Pair
    ) -> NDArray[np.float32]:
        """Mel (T, mel bins) and source spectrum (fft size + 2, F) to spectrum, same shape."""
        middle, context = len(mel) // 2, self._dims.context_frames
        if middle <= context:
            return self._generate(mel, source)
        rate = self._dims.samples_per_frame // self._dims.fft_hop
        # Each half sees as much of the other as its samples depend on.
        begin, end = middle - context, middle + context
        left, right = pair(
            partial(self._generate, mel[:end], source[:, : end * rate + 1]),
            partial(self._generate, mel[begin:], source[:, begin * rate :]),
        )
        return np.concatenate([left[:, : middle * rate], right[:, context * rate :]], axis=1)

    def _generate(
        self, mel: NDArray[np.float32], source: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        inputs = {"mel": _channels_first(mel), "source": source[None]}
        spectrum: NDArray[np.float32] = run(self._hift, inputs)[0][0]
        return spectrum

    def draw(self, frames: int, generator: np.random.Generator) -> SourceNoise:
        """The random part of the source of so many mel frames."""
        dims = self._dims
        phase = generator.uniform(-np.pi, np.pi, dims.harmonics).astype(np.float32)
        noise = generator.standard_normal(
            (dims.harmonics, frames * dims.samples_per_frame), dtype=np.float32
        )
        return SourceNoise(phase, noise)

    def synthesize(
        self,
        mel: NDArray[np.float32],
        generator: np.random.Generator,
        *,
        pair: Pair = in_turn,
    ) -> NDArray[np.float32]:
        """Mel (T, mel bins) to samples (T * samples per frame,), all of the above in turn."""
        random = self.draw(len(mel), generator)
        source = self.source(self.f0(mel), random.phase, random.noise)
        return self.waveform(mel, source, pair=pair)


def _channels_first(mel: NDArray[np.float32]) -> NDArray[np.float32]:
    """(T, mel bins) to (1, mel bins, T)."""
    return np.ascontiguousarray(mel.T)[None]
