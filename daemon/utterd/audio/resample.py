"""Change the sample rate of speech without aliases."""

import numpy as np
import soxr

from utterd.audio.pcm import Pcm, limit_peak


def resample(pcm: Pcm, source_hz: int, target_hz: int) -> Pcm:
    """Resample with soxr's high-quality band-limited filter.

    Args:
        pcm: float32 mono samples, shape (n,).
        source_hz: their rate.
        target_hz: the rate wanted.

    Returns:
        Float32 mono samples, shape (round(n * target_hz / source_hz),). Where the rates differ
        the filter's overshoot is limited to full scale; where they are equal the samples are
        returned as they are.
    """
    if source_hz == target_hz:
        return pcm
    length = round(pcm.size * target_hz / source_hz)
    resampled = np.zeros(length, np.float32)
    if length:
        # soxr rounds the length its own way and may be off by one.
        samples = np.asarray(soxr.resample(pcm, source_hz, target_hz, quality="HQ"), np.float32)
        kept = min(length, samples.size)
        resampled[:kept] = samples[:kept]
    return limit_peak(resampled)
