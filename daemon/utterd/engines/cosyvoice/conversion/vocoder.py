"""HiFT: f0 predictor and generator, mel to the spectrum of an inverse STFT.

Source: HiFTNet, arXiv 2309.09493; its activation is Snake, arXiv 2006.08195.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from utterd.engines.cosyvoice.conversion.encoder import take_pair
from utterd.engines.cosyvoice.conversion.graph import Graph
from utterd.engines.cosyvoice.conversion.static_quantization import (
    LayerRange,
    byte_levels,
    dequantized,
    fine_levels,
    observed_ranges,
    quantized_convolution,
    tabulated,
)
from utterd.engines.cosyvoice.conversion.weights import Array, Weights
from utterd.engines.cosyvoice.manifest import Precision
from utterd.errors import ConfigurationError

_ALPHA_FLOOR = 1e-9
# conv_post is preceded by PyTorch's own default slope, not by the configured one.
_LAST_SLOPE = 0.01


@dataclass(frozen=True, slots=True)
class HiftShape:
    """What the tensors of the generator don't tell.

    Attributes:
        upsample_rates: of the transposed convolutions.
        dilations: of the residual blocks after each of them, block by block.
        source_dilations: of the source's residual blocks.
        slope: of the leaky activations.
    """

    upsample_rates: tuple[int, ...]
    dilations: tuple[tuple[int, ...], ...]
    source_dilations: tuple[tuple[int, ...], ...]
    slope: float


def write_f0_predictor(weights: Weights, path: Path) -> int:
    """Write the graph: mel (1, mel bins, T) to f0 (1, T) in Hz. Returns the mel bins.

    It is small, and always float32, for an error in pitch is heard.
    """
    graph = Graph("f0")
    count = 0
    mel_bins = 0
    x = graph.input("mel", (1, "M", "T"))
    # Convolutions stand at even places, activations between them.
    while f"f0_predictor.condnet.{2 * count}.bias" in weights:
        weight, bias = _take_convolution(weights, f"f0_predictor.condnet.{2 * count}")
        mel_bins = mel_bins or weight.shape[1]
        x = graph.op("Elu", _convolution(graph, x, weight, bias))
        count += 1
    weight, bias = take_pair(weights, "f0_predictor.classifier", 1, None)
    x = graph.op("Abs", _convolution(graph, x, weight[:, :, None], bias))
    graph.output("f0", graph.op("Squeeze", x, graph.integers(1)), (1, "T"))
    graph.save(path)
    return mel_bins


class HiftWriter:
    """Adds the generator's blocks to a graph in (batch, channels, time).

    Residual blocks that are not float32 have their channels last.

    Args:
        weights: of `hift.pt`.
        shape: of the generator.
        precision: of the residual blocks' convolutions.
        ranges: of these blocks' layers by their names, if they are not float32.
    """

    def __init__(
        self,
        weights: Weights,
        shape: HiftShape,
        precision: Precision = Precision.FLOAT32,
        ranges: Mapping[str, LayerRange] | None = None,
    ) -> None:
        self._weights = weights
        self._shape = shape
        self._precision = precision
        self._ranges = ranges
        # As the kernel of the int8 convolution wants them.
        self._is_channels_last = ranges is not None
        self._graph = Graph("hift")
        self._layers: dict[str, tuple[str, str]] = {}

    def write(self, path: Path) -> None:
        """Write the graph: mel (1, mel bins, T), source (1, n_fft + 2, F) to spectrum.

        The spectrum is (1, n_fft + 2, F): log magnitudes, then what the phases are sines of.
        """
        self._add_generator()
        self._graph.save(path)

    def write_observer(self, path: Path) -> tuple[str, ...]:
        """Write the same graph with one more output, ranges (n, 4).

        Each row has the least and the greatest input, and the least and the greatest output, of
        one layer of a residual block. Returns their names.
        """
        self._add_generator()
        rows = observed_ranges(self._graph, self._layers.values())
        self._graph.output("ranges", rows, (len(self._layers), 4))
        self._graph.save(path)
        return tuple(self._layers)

    def _add_generator(self) -> None:
        graph, shape = self._graph, self._shape
        weight, bias = _take_convolution(self._weights, "conv_pre")
        x = graph.input("mel", (1, weight.shape[1], "T"))
        source_width = self._weights.take("source_downs.0.weight", None, None, None).shape[1]
        source = graph.input("source", (1, source_width, "F"))
        x = _convolution(graph, x, weight, bias)
        kernels = len(shape.dilations)
        strides = np.cumprod([1, *shape.upsample_rates[::-1][:-1]])[::-1]
        for level, rate in enumerate(shape.upsample_rates):
            x = self._upsample(graph.op("LeakyRelu", x, alpha=shape.slope), level, rate)
            if level == len(shape.upsample_rates) - 1:
                # The inverse STFT has one frame more than the mel times the rates.
                x = graph.op("Pad", x, graph.integers(0, 0, 1, 0, 0, 0), mode="reflect")
            x = graph.op("Add", self._turned(x), self._source(source, level, int(strides[level])))
            blocks = [
                self._residual(f"resblocks.{level * kernels + kernel}", x, dilations)
                for kernel, dilations in enumerate(shape.dilations)
            ]
            x = self._turned(graph.op("Mul", graph.op("Sum", *blocks), graph.scalar(1 / kernels)))
        x = graph.op("LeakyRelu", x, alpha=_LAST_SLOPE)
        weight, bias = _take_convolution(self._weights, "conv_post")
        graph.output("spectrum", _convolution(graph, x, weight, bias), (1, weight.shape[0], "F"))

    def _upsample(self, x: str, level: int, rate: int) -> str:
        weight = self._weights.take_normed(f"ups.{level}", None, None, None)
        bias = self._weights.take(f"ups.{level}.bias", weight.shape[1])
        if weight.shape[2] < rate or (weight.shape[2] - rate) % 2:
            raise _unfit_rates(f"ups.{level}")
        padding = (weight.shape[2] - rate) // 2
        return self._graph.op(
            "ConvTranspose",
            x,
            self._graph.constant(weight, "weight"),
            self._graph.constant(bias),
            strides=[rate],
            pads=[padding, padding],
        )

    def _source(self, source: str, level: int, stride: int) -> str:
        weight, bias = take_pair(self._weights, f"source_downs.{level}", None, None, None)
        if weight.shape[2] != (2 * stride if stride > 1 else 1):
            raise _unfit_rates(f"source_downs.{level}")
        padding = stride // 2 if stride > 1 else 0
        down = self._graph.op(
            "Conv",
            source,
            self._graph.constant(weight, "weight"),
            self._graph.constant(bias),
            strides=[stride],
            pads=[padding, padding],
        )
        return self._residual(
            f"source_resblocks.{level}", self._turned(down), self._shape.source_dilations[level]
        )

    def _turned(self, x: str) -> str:
        """Into the order of axes of residual blocks, or back from it."""
        return self._graph.op("Transpose", x, perm=[0, 2, 1]) if self._is_channels_last else x

    def _residual(self, prefix: str, x: str, dilations: tuple[int, ...]) -> str:
        """Two Snakes and convolutions for each dilation: nearly all of the generator's work."""
        for number, dilation in enumerate(dilations):
            steps = [
                (f"{prefix}.activations1.{number}", f"{prefix}.convs1.{number}", dilation),
                (f"{prefix}.activations2.{number}", f"{prefix}.convs2.{number}", 1),
            ]
            if self._ranges is None:
                hidden = self._convolutions(steps, x)
            else:
                hidden = self._byte_convolutions(steps, x, self._ranges)
            x = self._graph.op("Add", x, hidden)
        return x

    def _convolutions(self, steps: Iterable[tuple[str, str, int]], x: str) -> str:
        for snake, convolution, dilation in steps:
            active = self._snake(snake, x)
            self._layers[snake] = (x, active)
            pair = _take_convolution(self._weights, convolution)
            x = _convolution(self._graph, active, *pair, dilation)
            self._layers[convolution] = (active, x)
        return x

    def _byte_convolutions(
        self, steps: Sequence[tuple[str, str, int]], x: str, ranges: Mapping[str, LayerRange]
    ) -> str:
        first_snake, last_convolution = steps[0][0], steps[-1][1]
        levels = fine_levels(self._graph, x, ranges[first_snake].input)
        for snake, convolution, dilation in steps:
            span = ranges[convolution]
            function = partial(_snake_of, alpha=self._weights.take(f"{snake}.alpha", None))
            x = quantized_convolution(
                self._graph,
                tabulated(self._graph, levels, function, span.input),
                *_take_convolution(self._weights, convolution),
                span,
                dilation,
                weight_peak=self._precision.weight_peak,
            )
            levels = byte_levels(x, span.output)
        return dequantized(self._graph, x, ranges[last_convolution].output)

    def _snake(self, prefix: str, x: str) -> str:
        """Nodes for `_snake_of`, with the channels first."""
        graph = self._graph
        alpha = self._weights.take(f"{prefix}.alpha", None)[:, None]
        wave = graph.op("Sin", graph.op("Mul", x, graph.constant(alpha, "alpha")))
        inverse = graph.constant(_inverse(alpha))
        return graph.op("Add", x, graph.op("Mul", graph.op("Mul", wave, wave), inverse))


def _snake_of(x: Array, alpha: Array) -> Array:
    """`x + sin(alpha x)^2 / alpha`, alpha by channel: (n, 1) to (n, channels)."""
    wave = np.sin(x * alpha)
    return np.asarray(x + wave * wave * _inverse(alpha), np.float32)


def _inverse(alpha: Array) -> Array:
    return np.asarray(1 / (alpha + np.float32(_ALPHA_FLOOR)), np.float32)


def _unfit_rates(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"cosyvoice.yaml: hift.upsample_rates does not fit to {name} of hift.pt: use the released"
        " files"
    )


def _take_convolution(weights: Weights, prefix: str) -> tuple[Array, Array]:
    weight = weights.take_normed(prefix, None, None, None)
    return weight, weights.take(f"{prefix}.bias", weight.shape[0])


def _convolution(graph: Graph, x: str, weight: Array, bias: Array, dilation: int = 1) -> str:
    """A convolution over time that keeps the length."""
    padding = (weight.shape[2] - 1) * dilation // 2
    return graph.op(
        "Conv",
        x,
        graph.constant(weight, "weight"),
        graph.constant(bias),
        pads=[padding, padding],
        dilations=[dilation],
    )
