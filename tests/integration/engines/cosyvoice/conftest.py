"""Bundles of small checkpoints, converted once a session."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support.cosyvoice import TINY, Dims, Encoder, write_checkpoint
from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.conversion.convert import convert
from utterd.engines.cosyvoice.manifest import Precision

OTHER = Dims(
    text_tokens=97,
    text_input=24,
    text=Encoder(width=48, heads=3, inner=40, layers=3),
    lm_input=40,
    lm=Encoder(width=64, heads=2, inner=72, layers=3),
    speech_tokens=61,
    speaker=12,
    flow=Encoder(width=40, heads=5, inner=56, layers=1),
    mel=20,
    channels=(16, 24, 32),
    blocks=2,
    middle=1,
    heads=3,
    head_width=8,
    hift_channels=16,
    f0_channels=8,
)
"""Sizes that differ from the release in every number, with a level more in the U-Net."""

Convert = Callable[[Path, Precision], Bundle]


@pytest.fixture(scope="session")
def convert_once(tmp_path_factory: pytest.TempPathFactory) -> Convert:
    made: dict[tuple[Path, Precision], Bundle] = {}

    def converted(checkpoint: Path, precision: Precision) -> Bundle:
        if (checkpoint, precision) not in made:
            out = tmp_path_factory.mktemp("bundles") / "bundle"
            conversion = convert(checkpoint, out, precision=precision, report=lambda _step: None)
            made[checkpoint, precision] = conversion.bundle
        return made[checkpoint, precision]

    return converted


@pytest.fixture(scope="session")
def other_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("other"), OTHER)


@pytest.fixture(scope="session")
def tiny(convert_once: Convert) -> Bundle:
    """The tiny checkpoint whose outputs the original modules computed, in float32."""
    return convert_once(TINY, Precision.FLOAT32)


@pytest.fixture(scope="session")
def tiny_int8(convert_once: Convert) -> Bundle:
    return convert_once(TINY, Precision.INT8)


@pytest.fixture(scope="session")
def tiny_int7(convert_once: Convert) -> Bundle:
    return convert_once(TINY, Precision.INT7)


@pytest.fixture(scope="session")
def other(convert_once: Convert, other_checkpoint: Path) -> Bundle:
    return convert_once(other_checkpoint, Precision.FLOAT32)
