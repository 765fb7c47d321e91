from pathlib import Path

import numpy as np
import pytest

from support.torch_zip import save_torch
from utterd.engines.cosyvoice.conversion.weights import open_weights
from utterd.errors import ConfigurationError

MAGNITUDE = np.array([2.0, 3.0], np.float32).reshape(2, 1, 1)
DIRECTION = np.array([[[3.0, 4.0]], [[0.0, 2.0]]], np.float32)
WEIGHT = np.array([[[1.2, 1.6]], [[0.0, 3.0]]], np.float32)


@pytest.mark.parametrize("wrapper", ["", "generator."])
@pytest.mark.parametrize(
    ("magnitude", "direction"),
    [
        ("weight_g", "weight_v"),
        ("parametrizations.weight.original0", "parametrizations.weight.original1"),
    ],
)
def test_both_spellings_of_weight_norm(
    tmp_path: Path, wrapper: str, magnitude: str, direction: str
):
    """Old and new spelling, with and without the wrapper's name, give the same weight."""
    path = tmp_path / "hift.pt"
    save_torch(path, {f"{wrapper}c.{magnitude}": MAGNITUDE, f"{wrapper}c.{direction}": DIRECTION})

    with open_weights(path) as weights:
        taken = weights.take_normed("c", 2, None, None)

    assert np.allclose(taken, WEIGHT)


def test_a_weight_without_norm_is_taken_as_it_is(tmp_path: Path):
    """Checkpoints whose weight norm was removed hold plain weights."""
    path = tmp_path / "hift.pt"
    save_torch(path, {"c.weight": WEIGHT})

    with open_weights(path) as weights:
        assert np.array_equal(weights.take_normed("c"), WEIGHT)


def test_a_missing_tensor_is_named(tmp_path: Path):
    """The error of a missing tensor names file and tensor."""
    path = tmp_path / "llm.pt"
    save_torch(path, {"a.weight": WEIGHT})

    with (
        pytest.raises(ConfigurationError, match=r"llm\.pt: the tensor a\.bias is missing"),
        open_weights(path) as weights,
    ):
        weights.take("a.bias")


def test_a_tensor_with_and_without_a_prefix_is_refused(tmp_path: Path):
    """One of them would be left out in silence."""
    path = tmp_path / "hift.pt"
    save_torch(path, {"a.weight": WEIGHT, "generator.a.weight": WEIGHT})

    with (
        pytest.raises(ConfigurationError, match=r"hift\.pt has the tensor a\.weight twice"),
        open_weights(path),
    ):
        pass


def test_unknown_tensors_are_named(tmp_path: Path):
    """Tensors that nobody used are refused by their names, for the model would sound otherwise."""
    path = tmp_path / "llm.pt"
    save_torch(path, {"a.weight": WEIGHT, "b.weight": WEIGHT, "epoch": 3})

    with (
        pytest.raises(ConfigurationError, match=r"llm\.pt: unknown tensors: b\.weight\."),
        open_weights(path) as weights,
    ):
        weights.take("a.weight")


def test_a_wrong_shape_is_told(tmp_path: Path):
    """A tensor of another shape is refused with both shapes."""
    path = tmp_path / "llm.pt"
    save_torch(path, {"a.weight": WEIGHT})

    with (
        pytest.raises(ConfigurationError, match=r"\(2, 1, 2\), not \('any', 4, 2\)"),
        open_weights(path) as weights,
    ):
        weights.take("a.weight", None, 4, 2)


def test_numbers_that_are_none_are_refused(tmp_path: Path):
    """NaN in a checkpoint is found at conversion, not heard later."""
    path = tmp_path / "llm.pt"
    save_torch(path, {"a.weight": np.array([1, np.nan], np.float32)})

    with (
        pytest.raises(ConfigurationError, match="NaN or infinity"),
        open_weights(path) as weights,
    ):
        weights.take("a.weight")


def test_a_direction_without_length_is_refused(tmp_path: Path):
    """Weight norm that divides by zero is told by the tensors' name."""
    path = tmp_path / "hift.pt"
    save_torch(path, {"c.weight_g": MAGNITUDE, "c.weight_v": np.zeros_like(DIRECTION)})

    with (
        pytest.raises(ConfigurationError, match="tensors of c make NaN or infinity"),
        open_weights(path) as weights,
    ):
        weights.take_normed("c")


def test_a_magnitude_of_another_shape_is_refused(tmp_path: Path):
    """Weight norm has one magnitude for each row, and is not broadcast."""
    path = tmp_path / "hift.pt"
    save_torch(path, {"c.weight_g": np.ones((1, 1, 9)), "c.weight_v": DIRECTION})

    with (
        pytest.raises(ConfigurationError, match=r"c\.weight_g has the shape \(1, 1, 9\)"),
        open_weights(path) as weights,
    ):
        weights.take_normed("c")
