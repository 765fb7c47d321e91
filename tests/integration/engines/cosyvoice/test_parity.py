"""Converted graphs against the original modules, and against their definitions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from support import cosyvoice_reference as definition
from support.cosyvoice import REFERENCE
from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.conversion.torch_file import read_torch_file
from utterd.engines.cosyvoice.model.flow import Flow
from utterd.engines.cosyvoice.model.language_model import SpeechLM
from utterd.engines.cosyvoice.model.text_encoder import TextEncoder
from utterd.engines.cosyvoice.verification import verify

VOICE = "粤语女"
OTHER_HEADS = 3


def tensors(checkpoint: Path, name: str) -> dict[str, NDArray[Any]]:
    read = read_torch_file(checkpoint / name)
    assert isinstance(read, dict)
    return read


def test_every_stage_computes_what_the_original_did(tiny: Bundle):
    """On the tiny checkpoint, each stage is within its tolerance of the official modules."""
    checks = {check.name: check for check in verify(tiny, REFERENCE)}

    assert [name for name, check in checks.items() if not check.passed] == []
    compared = {name for name, check in checks.items() if check.difference is not None}
    assert compared == {"text encoding", "logits", "mel", "f0", "source", "waveform"}


def test_an_int7_bundle_is_near(tiny_int7: Bundle):
    """A bit less changes little."""
    assert all(check.passed for check in verify(tiny_int7, REFERENCE))


def test_an_int8_bundle_is_near(tiny_int8: Bundle):
    """On the tiny checkpoint, int8 differs from the official modules by rounding."""
    assert all(check.passed for check in verify(tiny_int8, REFERENCE))


def test_text_of_another_checkpoint(other: Bundle, other_checkpoint: Path):
    """Text encoder and logits follow their definitions at other sizes."""
    random = np.random.default_rng(1)
    ids, spoken = random.integers(0, 97, 11), random.integers(0, 61, 7)
    speaker = other.voices[VOICE].speaker
    llm = tensors(other_checkpoint, "llm.pt")
    encoder, model = TextEncoder(other), SpeechLM(other)

    prompt = model.prompt(encoder.encode(ids), speaker)
    cache = model.new_cache(rows=1, capacity=64)
    found = [model.join(cache, 0, prompt)]
    found.extend(model.step(cache, [0], spoken[[step]])[0] for step in range(len(spoken)))

    assert np.abs(encoder.encoding(ids) - definition.text_encoding(llm, ids)).max() < 1e-4
    wanted = definition.logits(llm, ids, speaker, spoken)
    assert np.abs(np.stack(found) - wanted).max() < 1e-4


@pytest.mark.parametrize("count", [1, 5, 17, 40])
def test_mel_of_another_checkpoint(other: Bundle, other_checkpoint: Path, count: int):
    """The flow follows its definition at other sizes and with odd lengths at each level."""
    random = np.random.default_rng(count)
    flow = Flow(other)
    tokens = random.integers(0, 61, count)
    noise = random.standard_normal((flow.mel_length(count), 20), dtype=np.float32)
    speaker = other.voices[VOICE].speaker

    found = flow.mel(tokens, speaker, noise, steps=4)

    wanted = definition.mel(
        tensors(other_checkpoint, "flow.pt"), tokens, speaker, noise, heads=OTHER_HEADS, steps=4
    )
    assert np.abs(found - wanted).max() < 1e-3 * max(1, np.abs(wanted).max())
