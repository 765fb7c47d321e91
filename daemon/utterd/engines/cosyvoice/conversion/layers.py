"""Layers as nodes: linear and convolution in float32 or int8, norms, activations.

Sequences are (batch, time, channels), so that a convolution is one matrix product over shifted
copies, which the int8 kernels cover. int8 means: weights signed with a scale per output channel,
activations unsigned with one scale per tensor or one per row, found as they come.
"""

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from utterd.engines.cosyvoice.conversion.graph import END, Graph
from utterd.engines.cosyvoice.conversion.weights import Array
from utterd.engines.cosyvoice.manifest import Precision

# e^x (e^x + 2) stays finite in float32, and tanh(softplus(x)) is 1 from here on.
_MISH_LIMIT = 20.0


class Layers:
    """Adds layers to a graph, all with the same arithmetic.

    Args:
        graph: gets the nodes.
        precision: of matrix products with weights.
        by_row: whether each row of activations has a scale of its own, so that rows of a batch
            don't disturb each other. In float32 they never do.
    """

    def __init__(self, graph: Graph, precision: Precision, *, by_row: bool = False) -> None:
        self.graph = graph
        self._precision = precision
        self._scales_by_row = by_row
        self._quantized: dict[str, tuple[str, str, str]] = {}
        self._by_row: dict[str, tuple[str, str]] = {}

    def linear(self, x: str, weight: Array, bias: Array | None = None) -> str:
        """`x @ weight.T + bias` over the last axis; weight is (out, in) as torch keeps it."""
        return self._product(x, np.ascontiguousarray(weight.T), bias)

    def convolution(self, x: str, weight: Array, bias: Array, *, stride: int = 1) -> str:
        """A convolution over time with zero padding of half the kernel; weight (out, in, kernel).

        With stride 1 and an odd kernel, the length stays.
        """
        kernel = weight.shape[2]
        if kernel == 1:
            return self.linear(x, weight[:, :, 0], bias)
        matrix = np.ascontiguousarray(weight.transpose(2, 1, 0).reshape(-1, weight.shape[0]))
        return self._product(x, matrix, bias, shifted=self._shifter(kernel, stride))

    def doubling_convolution(self, x: str, weight: Array, bias: Array) -> str:
        """A transposed convolution of kernel 4, stride 2, padding 1; weight (in, out, 4).

        Sample 2t is x[t-1] w[3] + x[t] w[1], sample 2t+1 is x[t] w[2] + x[t+1] w[0].
        """
        inputs, outputs, _ = weight.shape
        matrix = np.zeros((3, inputs, 2, outputs), np.float32)
        matrix[0, :, 0], matrix[1, :, 0] = weight[:, :, 3], weight[:, :, 1]
        matrix[1, :, 1], matrix[2, :, 1] = weight[:, :, 2], weight[:, :, 0]
        pairs = self._product(
            x,
            matrix.reshape(3 * inputs, 2 * outputs),
            np.concatenate([bias, bias]),
            shifted=self._shifter(3, 1),
        )
        return self.graph.reshape(pairs, 0, -1, outputs)

    def layer_norm(self, x: str, scale: Array, bias: Array, epsilon: float) -> str:
        constant = self.graph.constant
        return self.graph.op(
            "LayerNormalization", x, constant(scale), constant(bias), axis=-1, epsilon=epsilon
        )

    def group_norm(self, x: str, groups: int, scale: Array, bias: Array) -> str:
        """GroupNorm of (batch, time, channels), epsilon 1e-5, as two numbers per channel.

        Mean and variance of a group come from each channel's means over time.
        """
        graph = self.graph
        channels = scale.shape[0]
        grouped = (0, groups, channels // groups)
        equal_shares = self._equal_shares(x)
        mean, square = (
            graph.op(
                "ReduceMean",
                graph.reshape(graph.op("MatMul", equal_shares, value), *grouped),
                graph.integers(2),
                keepdims=1,
            )
            for value in (x, graph.op("Mul", x, x))
        )
        variance = graph.op("Sub", square, graph.op("Mul", mean, mean))
        deviation = graph.op("Sqrt", graph.op("Add", variance, graph.scalar(1e-5)))
        factor = graph.op("Div", graph.constant(scale.reshape(1, groups, -1)), deviation)
        offset = graph.op(
            "Sub", graph.constant(bias.reshape(1, groups, -1)), graph.op("Mul", mean, factor)
        )
        flat = (0, 1, channels)
        scaled = graph.op("Mul", x, graph.reshape(factor, *flat))
        return graph.op("Add", scaled, graph.reshape(offset, *flat))

    def _equal_shares(self, x: str) -> str:
        """What to multiply (batch, time, channels) with for means over time: 1 / time, (1, time).

        A product with it takes a fifth of the time of a reduction over that axis.
        """
        graph = self.graph
        length = graph.op("Shape", x, start=1, end=2)
        share = graph.op("Reciprocal", graph.op("Cast", length, to=TensorProto.FLOAT))
        shape = graph.op("Concat", graph.integers(1), length, axis=0)
        return graph.op("Expand", share, shape)

    def mish(self, x: str) -> str:
        """`x tanh(softplus(x))` as `x n / (n + 2)` with `n = e^x (e^x + 2)`: no slow kernel."""
        graph = self.graph
        two = graph.scalar(2.0)
        power = graph.op("Exp", graph.op("Min", x, graph.scalar(_MISH_LIMIT)))
        n = graph.op("Mul", power, graph.op("Add", power, two))
        return graph.op("Mul", x, graph.op("Div", n, graph.op("Add", n, two)))

    def swish(self, x: str) -> str:
        return self.graph.op("QuickGelu", x, alpha=1.0)

    def _shifter(self, kernel: int, stride: int) -> Callable[[str, str], str]:
        """Time shifts side by side: (batch, time, channels) to (batch, time', kernel channels)."""
        half = kernel // 2

        def shifted(x: str, zero: str) -> str:
            graph = self.graph
            padded = graph.op("Pad", x, graph.integers(0, half, 0, 0, half, 0), zero)
            copies = (
                graph.slice(padded, 1, shift, shift - 2 * half or END, stride)
                for shift in range(2 * half + 1)
            )
            return graph.op("Concat", *copies, axis=-1)

        return shifted

    def _product(
        self,
        x: str,
        matrix: Array,
        bias: Array | None,
        *,
        shifted: Callable[[str, str], str] | None = None,
    ) -> str:
        """`x @ matrix + bias` with matrix (in, out); `shifted` widens x, given its zero."""
        graph = self.graph
        if self._precision is Precision.FLOAT32:
            rows = x if shifted is None else shifted(x, graph.scalar(0.0))
            product = graph.op("MatMul", rows, graph.constant(matrix, "weight"))
            return product if bias is None else graph.op("Add", product, graph.constant(bias))
        if not self._scales_by_row:
            quantized, scale, zero = self._quantize(x)
            rows = quantized if shifted is None else shifted(quantized, zero)
            return self._integer_product(rows, scale, zero, matrix, bias)
        if shifted is not None:
            raise ValueError("a convolution mixes rows")
        rows, peak = self._quantize_by_row(x)
        scale = graph.scalar(1 / 127)
        zero = graph.constant(np.array(128, np.uint8))
        product = graph.op("Mul", self._integer_product(rows, scale, zero, matrix, None), peak)
        return product if bias is None else graph.op("Add", product, graph.constant(bias))

    def _integer_product(
        self, rows: str, scale: str, zero: str, matrix: Array, bias: Array | None
    ) -> str:
        graph = self.graph
        peaks = np.maximum(np.abs(matrix).max(axis=0), np.float32(1e-30))
        weight_scale = peaks / np.float32(self._precision.weight_peak)
        weight = np.rint(matrix / weight_scale).astype(np.int8)
        return graph.op(
            "MatMulIntegerToFloat",
            rows,
            graph.constant(weight, "weight"),
            scale,
            graph.constant(weight_scale),
            zero,
            "",
            *(() if bias is None else (graph.constant(bias),)),
        )

    def _quantize(self, x: str) -> tuple[str, str, str]:
        """Turn x into unsigned bytes with scale and zero; once for all products that read it."""
        if x not in self._quantized:
            quantized, scale, zero = self.graph.ops("DynamicQuantizeLinear", [x], 3)
            self._quantized[x] = (quantized, scale, zero)
        return self._quantized[x]

    def _quantize_by_row(self, x: str) -> tuple[str, str]:
        """Turn x into bytes around 128 that are 127ths of each row's peak, with that peak."""
        if x not in self._by_row:
            graph = self.graph
            magnitude = graph.op("Abs", x)
            peak = graph.op("ReduceMax", magnitude, graph.integers(-1), keepdims=1)
            peak = graph.op("Max", peak, graph.scalar(1e-30))
            quantized = graph.op(
                "QuantizeLinear",
                graph.op("Div", x, peak),
                graph.scalar(1 / 127),
                graph.constant(np.array(128, np.uint8)),
            )
            self._by_row[x] = (quantized, peak)
        return self._by_row[x]
