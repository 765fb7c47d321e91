"""Convolutions in int8 with ranges that were measured before.

Onnxruntime's kernel for it is five times as fast as the float32 one on a processor with VNNI; the
kernel that finds the ranges as they come is slower than float32.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from utterd.engines.cosyvoice.conversion.graph import Graph
from utterd.engines.cosyvoice.conversion.weights import Array


@dataclass(frozen=True, slots=True)
class ConvolutionRange:
    """Least and greatest values of a convolution's input and output."""

    input: tuple[float, float]
    output: tuple[float, float]


def observed_ranges(graph: Graph, convolved: Iterable[tuple[str, str]]) -> str:
    """Nodes that find the ranges of inputs and outputs: (number of pairs, 4)."""
    numbers = [
        graph.op(kind, value, keepdims=0)
        for pair in convolved
        for value in pair
        for kind in ("ReduceMin", "ReduceMax")
    ]
    flat = graph.op("Concat", *(graph.reshape(number, 1) for number in numbers), axis=0)
    return graph.reshape(flat, -1, 4)


def merge_ranges(rows: Iterable[NDArray[np.float32]]) -> list[ConvolutionRange]:
    """The ranges that hold all observations; each is (n, 4) as `observed_ranges` gives it."""
    stacked = np.stack(list(rows))
    least, greatest = stacked.min(axis=0), stacked.max(axis=0)
    return [
        ConvolutionRange((float(low[0]), float(high[1])), (float(low[2]), float(high[3])))
        for low, high in zip(least, greatest, strict=True)
    ]


def quantized_convolution(
    graph: Graph,
    x: str,
    weight: Array,
    bias: Array,
    span: ConvolutionRange,
    dilation: int,
    *,
    weight_peak: int,
) -> str:
    """A convolution over time that keeps the length; float32 (1, T, in) to float32 (1, T, out).

    The kernel wants the channels last, and would transpose its input and output otherwise. Integer
    weights are at most `weight_peak`.
    """
    padding = (weight.shape[2] - 1) * dilation // 2
    input_scale, input_zero = _affine(*span.input)
    output_scale, output_zero = _affine(*span.output)
    peaks = np.abs(weight).max(axis=(1, 2))
    scale = np.maximum(peaks, np.float32(1e-30)) / np.float32(weight_peak)
    integers = np.rint(weight / scale[:, None, None]).astype(np.int8)
    limit = np.iinfo(np.int32).max
    offset = np.clip(np.rint(bias / (input_scale * scale.astype(np.float64))), -limit, limit)
    source = (graph.constant(input_scale), graph.constant(input_zero))
    target = (graph.constant(output_scale), graph.constant(output_zero))
    convolved = graph.op(
        "QLinearConv",
        graph.op("QuantizeLinear", x, *source),
        *source,
        graph.constant(integers, "weight"),
        graph.constant(scale),
        graph.constant(np.zeros(len(scale), np.int8)),
        *target,
        graph.constant(offset.astype(np.int32)),
        pads=[padding, padding],
        dilations=[dilation],
        channels_last=1,
    )
    return graph.op("DequantizeLinear", convolved, *target)


def _affine(low: float, high: float) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Scale and zero of unsigned bytes over a range, which is widened to hold 0."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max((high - low) / 255, 1e-12)
    return np.array(scale, np.float32), np.array(round(-low / scale), np.uint8)
