"""A short STFT and its inverse, with torch's conventions: periodic Hann window, centred frames."""

import numpy as np
from numpy.typing import NDArray


class Stft:
    """Transforms of one size.

    Args:
        size: of the FFT and the window, in samples; even.
        hop: samples between frames; divides the size.
    """

    def __init__(self, size: int, hop: int) -> None:
        self._size = size
        self._hop = hop
        self._overlap = size // hop
        self._window = np.hanning(size + 1)[:-1]
        angles = 2 * np.pi * np.outer(np.arange(size // 2 + 1), np.arange(size)) / size
        real, imaginary = np.cos(angles), -np.sin(angles)
        self._analysis = (np.concatenate([real, imaginary]) * self._window).astype(np.float32)
        # Every bin but the first and the last stands for its mirror image, too.
        weight = np.full((size // 2 + 1, 1), 2.0 / size)
        weight[[0, -1]] = 1.0 / size
        inverse = np.concatenate([real * weight, imaginary * weight]) * self._window
        self._synthesis = inverse.astype(np.float32)

    def forward(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Real parts, then imaginary parts: (n,) to (size + 2, n / hop + 1)."""
        padded = np.pad(samples, self._size // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, self._size)[:: self._hop]
        return self._analysis @ frames.T

    def inverse(
        self, magnitude: NDArray[np.float32], phase: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Overlap-add of (size / 2 + 1, F) polar spectra to ((F - 1) hop,) samples."""
        parts = np.concatenate([magnitude * np.cos(phase), magnitude * np.sin(phase)])
        frames = parts.T @ self._synthesis
        added = self._overlap_add(frames)
        envelope = self._overlap_add(
            np.broadcast_to(np.square(self._window).astype(np.float32), frames.shape)
        )
        middle = slice(self._size // 2, len(added) - self._size // 2)
        return added[middle] / envelope[middle]

    def _overlap_add(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        count = len(frames)
        added = np.zeros((count + self._overlap - 1, self._hop), np.float32)
        for part in range(self._overlap):
            added[part : part + count] += frames[:, part * self._hop : (part + 1) * self._hop]
        return added.reshape(-1)
