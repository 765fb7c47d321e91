"""The vocoder in two halves."""

import numpy as np
import pytest

from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.model.pair import Half
from utterd.engines.cosyvoice.model.vocoder import Vocoder


@pytest.mark.parametrize("extra_frames", [2, 3, 60])
def test_halves_are_the_whole(tiny: Bundle, extra_frames: int):
    """Where they meet, and everywhere else, they give the samples of one run."""
    context = tiny.manifest.vocoder.context_frames
    frames = 2 * context + extra_frames
    vocoder, random = Vocoder(tiny), np.random.default_rng(0)
    mel = random.standard_normal((frames, 80), dtype=np.float32)
    source = random.standard_normal(frames * 256, dtype=np.float32)
    halves: list[Half] = []

    def note(first: Half, second: Half) -> tuple[np.ndarray, np.ndarray]:
        halves.extend([first, second])
        return first(), second()

    waveform = vocoder.waveform(mel, source, pair=note)

    wide = tiny.manifest.vocoder.model_copy(update={"context_frames": frames})
    manifest = tiny.manifest.model_copy(update={"vocoder": wide})
    whole = Vocoder(Bundle(tiny.directory, manifest, tiny.digest)).waveform(mel, source)
    assert len(halves) == 2
    np.testing.assert_allclose(waveform, whole, atol=1e-5)


def test_the_context_is_no_longer_than_it_must_be(tiny: Bundle):
    """What a mel frame changes ends at the edge of its reach, or at most four frames before."""
    context = tiny.manifest.vocoder.context_frames
    frames = 4 * context
    vocoder, random = Vocoder(tiny), np.random.default_rng(1)
    mel = random.standard_normal((frames, 80), dtype=np.float32)
    source = random.standard_normal(frames * 256, dtype=np.float32)
    other = mel.copy()
    other[2 * context] += 100

    changed = np.flatnonzero(vocoder.waveform(mel, source) != vocoder.waveform(other, source))
    reach = max(2 * context - changed[0] // 256, changed[-1] // 256 - 2 * context)

    assert context - 4 <= reach <= context
