import numpy as np
import pytest

from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.model.flow import Flow
from utterd.engines.cosyvoice.model.vocoder import Vocoder


class StoppedError(Exception):
    """Somebody no longer wants the mel."""


def test_every_step_asks_whether_to_stop(tiny: Bundle):
    """A caller that gives up ends the work at the next Euler step."""
    flow = Flow(tiny)
    noise = np.zeros((flow.mel_length(9), 80), np.float32)
    asked = []

    def stop_at_the_third() -> None:
        asked.append(True)
        if len(asked) == 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        flow.mel(np.arange(9), np.ones(192, np.float32), noise, should_stop=stop_at_the_third)

    assert len(asked) == 3


def test_a_recording_conditions_and_is_cut_off(tiny: Bundle):
    """Tokens and mel of a recording change what follows, and are not part of it."""
    flow = Flow(tiny)
    random = np.random.default_rng(0)
    tokens, recorded = random.integers(0, 4096, 12), random.integers(0, 4096, 10)
    mel = random.standard_normal((17, 80), dtype=np.float32)
    frames = flow.mel_length(12)
    noise = random.standard_normal((17 + frames, 80), dtype=np.float32)
    speaker = np.ones(192, np.float32)

    alone = flow.mel(tokens, speaker, noise[17:])
    conditioned = flow.mel(tokens, speaker, noise, prompt_tokens=recorded, prompt_mel=mel)

    assert conditioned.shape == alone.shape == (frames, 80)
    assert np.abs(conditioned - alone).max() > 0.01


def test_the_same_seed_gives_the_same_samples(tiny: Bundle):
    """The vocoder's only chance is its generator."""
    vocoder = Vocoder(tiny)
    mel = np.random.default_rng(0).standard_normal((20, 80), dtype=np.float32)

    first, second, other = (
        vocoder.synthesize(mel, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )

    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert first.shape == (20 * 256,)
