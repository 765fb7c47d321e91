"""Functions of one number as tables, in onnxruntime."""

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from utterd.engines.cosyvoice.conversion.graph import Graph
from utterd.engines.cosyvoice.conversion.static_quantization import (
    byte_levels,
    dequantized,
    fine_levels,
    tabulated,
)

SOURCE, TARGET = (-3.0, 2.0), (-3.5, 4.0)
ALPHA = np.array([0.5, 1.0, 4.0], np.float32)
BYTE = (TARGET[1] - TARGET[0]) / 255


def snake(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(x + np.sin(ALPHA * x) ** 2 / ALPHA, np.float32)


@pytest.fixture
def compute() -> Callable[..., NDArray[np.float32]]:
    """Runs a tabulated Snake: bytes or float32 (T, 3) to float32 (T, 3)."""

    def run(x: NDArray[np.generic], source: tuple[float, float] = SOURCE) -> NDArray[np.float32]:
        graph = Graph("snake")
        shape = (1, "T", ALPHA.size)
        if x.dtype == np.uint8:
            levels = byte_levels(graph.input("x", shape, TensorProto.UINT8), source)
        else:
            levels = fine_levels(graph, graph.input("x", shape), source)
        value = tabulated(graph, levels, snake, TARGET)
        graph.output("y", dequantized(graph, value, TARGET), shape)
        session = onnxruntime.InferenceSession(graph.model().SerializeToString())
        y: NDArray[np.float32] = session.run(None, {"x": x[None]})[0][0]
        return y

    return run


def in_range(y: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.clip(y, *TARGET)


def test_a_table_of_bytes_is_exact(compute):
    """Each byte becomes the byte that computing in float32 would give."""
    every = np.repeat(np.arange(256, dtype=np.uint8)[:, None], ALPHA.size, axis=1)
    scale = (SOURCE[1] - SOURCE[0]) / 255
    wanted = in_range(snake((every.astype(np.float32) - round(-SOURCE[0] / scale)) * scale))
    assert np.abs(compute(every) - wanted).max() <= 0.51 * BYTE


def test_a_table_of_numbers_is_finer_than_a_byte(compute):
    """What it adds to the rounding of its result is a fraction of that."""
    x = np.random.default_rng(1).uniform(*SOURCE, (2000, ALPHA.size)).astype(np.float32)
    assert np.abs(compute(x) - in_range(snake(x))).max() <= 0.65 * BYTE


def test_numbers_beyond_the_range_are_known_too(compute):
    """A sentence may be louder than those that the range was measured with."""
    x = np.array([[-5.0] * 3, [4.0] * 3], np.float32)
    assert np.abs(compute(x) - in_range(snake(x))).max() <= 0.65 * BYTE


@pytest.mark.parametrize("x", [-1e30, 1e30, -np.inf, np.inf])
def test_numbers_beyond_the_table_are_taken_for_its_ends(compute, x: float):
    """No index leads out of it."""
    end = TARGET[0] if x < 0 else TARGET[1]
    assert np.abs(compute(np.full((1, 3), x, np.float32)) - end).max() <= BYTE


def test_a_silent_layer_has_a_table(compute):
    """Its range is empty."""
    silence = np.zeros((1, 3), np.float32)
    assert np.abs(compute(silence, (0.0, 0.0))).max() <= BYTE
