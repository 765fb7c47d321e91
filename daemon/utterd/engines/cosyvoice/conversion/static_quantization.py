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

# Their table of 128 channels takes half a megabyte, which stays in a core's cache.
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


def tabulated(
    graph: Graph,
    x: str,
    function: Callable[[Array], Array],
    source: tuple[float, float],
    target: tuple[float, float],
) -> str:
    """A function of one number, in each channel another; bytes (1, T, C) to bytes (1, T, C).

    A byte has 256 values, so the function is computed for each of them here, and looked up there:
    to the same bytes, in a third of the time.

    Args:
        graph: gets the nodes.
        x: bytes over `source`.
        function: of float32, (n, 1) to (n, C).
        source: the range of x.
        target: the range of the result.
    """
    scale, zero = _affine(source)
    values = (np.arange(256, dtype=np.float32) - zero) * scale
    return _looked_up(graph, x, function(values[:, None]), target)


def finely_tabulated(
    graph: Graph,
    x: str,
    function: Callable[[Array], Array],
    source: tuple[float, float],
    target: tuple[float, float],
) -> str:
    """As `tabulated`, for x in float32, which is taken in steps of an eighth of a byte's.

    The steps reach beyond `source` by half its width on either side.
    """
    low, high = min(source[0], 0.0), max(source[1], 0.0)
    step = max(high - low, 1e-12) / (_FINE_LEVELS / 2)
    zero = round(_FINE_LEVELS / 4 - low / step)
    values = np.asarray((np.arange(_FINE_LEVELS) - zero) * step, np.float32)
    level = graph.op(
        "com.microsoft.QuantizeLinear",
        graph.op("Clip", x, *(graph.scalar(float(end)) for end in values[[0, -1]])),
        graph.scalar(step),
        graph.constant(np.array(zero, np.uint16)),
    )
    return _looked_up(graph, level, function(values[:, None]), target)


def _looked_up(graph: Graph, level: str, values: Array, target: tuple[float, float]) -> str:
    """For each level of a channel its value, (levels, channels), as a byte over a range."""
    scale, zero = _affine(target)
    table = np.clip(np.rint(values / scale) + zero, 0, 255).astype(np.uint8)
    index = graph.op("Cast", level, to=TensorProto.INT32)
    return graph.op("GatherElements", graph.constant(table[None], "table"), index, axis=1)


def _constants(graph: Graph, span: tuple[float, float]) -> tuple[str, str]:
    scale, zero = _affine(span)
    return graph.constant(scale), graph.constant(zero)


def _affine(span: tuple[float, float]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Scale and zero of unsigned bytes over a range, which is widened to hold 0."""
    low, high = min(span[0], 0.0), max(span[1], 0.0)
    scale = max((high - low) / 255, 1e-12)
    return np.array(scale, np.float32), np.array(round(-low / scale), np.uint8)
