"""Convolutions, and functions between them, in int8 with ranges that were measured before.

Onnxruntime's kernel for it is five times as fast as the float32 one on a processor with VNNI; the
kernel that finds the ranges as they come is slower than float32. What stands between two of them
would then take longer than they do, if it were computed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from utterd.engines.cosyvoice.conversion.graph import Graph
from utterd.engines.cosyvoice.conversion.weights import Array

# The table of 128 channels takes half a megabyte, which stays in a core's cache.
_FINE_LEVELS = 4096


@dataclass(frozen=True, slots=True)
class LayerRange:
    """Least and greatest values of a layer's input and output."""

    input: tuple[float, float]
    output: tuple[float, float]


def observed_ranges(graph: Graph, layers: Iterable[tuple[str, str]]) -> str:
    """Nodes that find the ranges of inputs and outputs: (number of pairs, 4)."""
    numbers = [
        graph.op(kind, value, keepdims=0)
        for pair in layers
        for value in pair
        for kind in ("ReduceMin", "ReduceMax")
    ]
    flat = graph.op("Concat", *(graph.reshape(number, 1) for number in numbers), axis=0)
    return graph.reshape(flat, -1, 4)


def merge_ranges(rows: Iterable[NDArray[np.float32]]) -> list[LayerRange]:
    """The ranges that hold all observations; each is (n, 4) as `observed_ranges` gives it."""
    stacked = np.stack(list(rows))
    least, greatest = stacked.min(axis=0), stacked.max(axis=0)
    return [
        LayerRange((float(low[0]), float(high[1])), (float(low[2]), float(high[3])))
        for low, high in zip(least, greatest, strict=True)
    ]


def dequantized(graph: Graph, x: str, span: tuple[float, float]) -> str:
    """Unsigned bytes over a range as float32."""
    return graph.op("DequantizeLinear", x, *_constants(graph, span))


def quantized_convolution(
    graph: Graph,
    x: str,
    weight: Array,
    bias: Array,
    span: LayerRange,
    dilation: int,
    *,
    weight_peak: int,
) -> str:
    """A convolution over time that keeps the length; bytes (1, T, in) to bytes (1, T, out).

    The kernel wants the channels last, and would transpose its input and output otherwise. Integer
    weights are at most `weight_peak`.
    """
    padding = (weight.shape[2] - 1) * dilation // 2
    input_scale, _ = _affine(span.input)
    peaks = np.abs(weight).max(axis=(1, 2))
    scale = np.maximum(peaks, np.float32(1e-30)) / np.float32(weight_peak)
    integers = np.rint(weight / scale[:, None, None]).astype(np.int8)
    limit = np.iinfo(np.int32).max
    offset = np.clip(np.rint(bias / (input_scale * scale.astype(np.float64))), -limit, limit)
    return graph.op(
        "QLinearConv",
        x,
        *_constants(graph, span.input),
        graph.constant(integers, "weight"),
        graph.constant(scale),
        graph.constant(np.zeros(len(scale), np.int8)),
        *_constants(graph, span.output),
        graph.constant(offset.astype(np.int32)),
        pads=[padding, padding],
        dilations=[dilation],
        channels_last=1,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Numbers that a value of a graph has been rounded to.

    Attributes:
        index: the value of the graph, integers (1, T, C).
        numbers: what each integer stands for, float32 of shape (n,).
    """

    index: str
    numbers: Array


def byte_levels(x: str, span: tuple[float, float]) -> Levels:
    """Those of unsigned bytes over a range."""
    scale, zero = _affine(span)
    return Levels(x, np.asarray((np.arange(256) - zero.astype(int)) * scale, np.float32))


def fine_levels(graph: Graph, x: str, span: tuple[float, float]) -> Levels:
    """Round float32 to steps of an eighth of a byte's over a range, and half of it on either side.

    What lies further outside is taken for the last level there.
    """
    low, high = _with_zero(span)
    step = max(high - low, 1e-12) / (_FINE_LEVELS / 2)
    zero = round(_FINE_LEVELS / 4 - low / step)
    numbers = np.asarray((np.arange(_FINE_LEVELS) - zero) * step, np.float32)
    rounded = graph.op(
        "com.microsoft.QuantizeLinear",
        graph.op("Clip", x, *(graph.scalar(float(end)) for end in numbers[[0, -1]])),
        graph.scalar(step),
        graph.constant(np.array(zero, np.uint16)),
    )
    return Levels(rounded, numbers)


def tabulated(
    graph: Graph, x: Levels, function: Callable[[Array], Array], span: tuple[float, float]
) -> str:
    """A function of one number, in each channel another, as unsigned bytes (1, T, C).

    It is computed for each level here, and looked up there: from bytes to the same bytes, in a
    third of the time.

    Args:
        graph: gets the nodes.
        x: what it is a function of.
        function: of float32, (n, 1) to (n, C).
        span: the range of the bytes.
    """
    scale, zero = _affine(span)
    table = np.rint(function(x.numbers[:, None]) / scale) + zero
    return graph.op(
        "GatherElements",
        graph.constant(np.clip(table, 0, 255).astype(np.uint8)[None], "table"),
        graph.op("Cast", x.index, to=TensorProto.INT32),
        axis=1,
    )


def _constants(graph: Graph, span: tuple[float, float]) -> tuple[str, str]:
    scale, zero = _affine(span)
    return graph.constant(scale), graph.constant(zero)


def _affine(span: tuple[float, float]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Scale and zero of unsigned bytes over a range."""
    low, high = _with_zero(span)
    scale = max((high - low) / 255, 1e-12)
    return np.array(scale, np.float32), np.array(round(-low / scale), np.uint8)


def _with_zero(span: tuple[float, float]) -> tuple[float, float]:
    """The range, widened to hold 0, which every scale has a level for."""
    return min(span[0], 0.0), max(span[1], 0.0)
