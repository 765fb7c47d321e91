"""The flow's velocity estimator: Matcha-TTS's U-Net of residual and transformer blocks.

What depends on the time step alone is a graph of its own, so that it is computed once per schedule
and not once per step.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from utterd.engines.cosyvoice.conversion.encoder import Pair, take_pair
from utterd.engines.cosyvoice.conversion.graph import Graph
from utterd.engines.cosyvoice.conversion.layers import Layers
from utterd.engines.cosyvoice.conversion.weights import Array, Weights
from utterd.engines.cosyvoice.manifest import Precision
from utterd.errors import ConfigurationError

_PREFIX = "decoder.estimator"
_GROUPS = 8
_NORM_EPSILON = 1e-5
_TIME_SCALE = 1000.0


@dataclass(slots=True)
class _TimeFeatures:
    """The time projections of all residual blocks, one after the other."""

    weights: list[Pair] = field(default_factory=list)

    def add(self, projection: Pair) -> slice:
        start = sum(len(bias) for _, bias in self.weights)
        self.weights.append(projection)
        return slice(start, start + len(projection[1]))


class EstimatorWriter:
    """Adds the U-Net's blocks to a graph.

    Args:
        weights: of `flow.pt`.
        heads: attention heads, from the configuration.
        mel_bins: channels of x, mu, speaker and condition each.
        precision: of the matrix products.
    """

    def __init__(self, weights: Weights, heads: int, mel_bins: int, precision: Precision) -> None:
        self._weights = weights
        self._heads = heads
        self._mel_bins = mel_bins
        self._graph = Graph("estimator")
        self._layers = Layers(self._graph, precision)
        self._time = _TimeFeatures()

    def write(self, estimator: Path, time_features: Path) -> None:
        """Write both graphs.

        `time_features`: t (N,) to features (N, F). `estimator`: x, mu, condition (B, T, mel bins),
        speaker (B, mel bins), features (1, F) to velocity (B, T, mel bins). All rows of a batch
        have the same length, for the norms see padding.
        """
        graph, bins = self._graph, self._mel_bins
        x = graph.input("x", ("B", "T", bins))
        mu = graph.input("mu", ("B", "T", bins))
        condition = graph.input("condition", ("B", "T", bins))
        speaker = graph.op("Unsqueeze", graph.input("speaker", ("B", bins)), graph.integers(1))
        features = graph.input("features", (1, "F"))
        speaker = graph.op("Expand", speaker, graph.op("Shape", x))
        velocity = self._unet(graph.op("Concat", x, mu, speaker, condition, axis=-1), features)
        graph.output("velocity", velocity, ("B", "T", bins))
        graph.save(estimator)
        self._write_time_features(time_features)

    def _unet(self, x: str, features: str) -> str:
        count = self._weights.count
        skipped: list[tuple[str, int]] = []
        for level in range(count(f"{_PREFIX}.down_blocks.{{}}.")):
            x, channels = self._block(f"{_PREFIX}.down_blocks.{level}", x, features)
            skipped.append((x, channels))
            x = self._down(f"{_PREFIX}.down_blocks.{level}.2", x)
        for number in range(count(f"{_PREFIX}.mid_blocks.{{}}.")):
            x, _ = self._block(f"{_PREFIX}.mid_blocks.{number}", x, features)
        for level in range(count(f"{_PREFIX}.up_blocks.{{}}.")):
            skip, _ = skipped.pop()
            x = self._graph.op("Concat", self._cropped(x, skip), skip, axis=-1)
            x, _ = self._block(f"{_PREFIX}.up_blocks.{level}", x, features)
            x = self._up(f"{_PREFIX}.up_blocks.{level}.2", x)
        x = self._normed_convolution(f"{_PREFIX}.final_block", x)
        last = take_pair(self._weights, f"{_PREFIX}.final_proj", self._mel_bins, None, 1)
        return self._layers.convolution(x, *last)

    def _block(self, prefix: str, x: str, features: str) -> tuple[str, int]:
        """A residual block and its transformers, and how many channels come out."""
        x, channels = self._residual(f"{prefix}.0", x, features)
        for number in range(self._weights.count(f"{prefix}.1.{{}}.")):
            x = self._transformer(f"{prefix}.1.{number}", x)
        return x, channels

    def _residual(self, prefix: str, x: str, features: str) -> tuple[str, int]:
        skip = take_pair(self._weights, f"{prefix}.res_conv", None, None, 1)
        span = self._time.add(take_pair(self._weights, f"{prefix}.mlp.1", None, None))
        graph = self._graph
        hidden = self._normed_convolution(f"{prefix}.block1", x)
        shift = graph.slice(features, 1, span.start, span.stop)
        hidden = graph.op("Add", hidden, graph.op("Unsqueeze", shift, graph.integers(1)))
        hidden = self._normed_convolution(f"{prefix}.block2", hidden)
        return graph.op("Add", hidden, self._layers.convolution(x, *skip)), skip[0].shape[0]

    def _normed_convolution(self, prefix: str, x: str) -> str:
        convolution = take_pair(self._weights, f"{prefix}.block.0", None, None, None)
        norm = take_pair(self._weights, f"{prefix}.block.1", convolution[0].shape[0])
        hidden = self._layers.convolution(x, *convolution)
        return self._layers.mish(self._layers.group_norm(hidden, _GROUPS, *norm))

    def _transformer(self, prefix: str, x: str) -> str:
        graph, layers, take = self._graph, self._layers, self._weights.take
        normed = layers.layer_norm(
            x, *take_pair(self._weights, f"{prefix}.norm1", None), _NORM_EPSILON
        )
        query, key, value = (take(f"{prefix}.attn1.to_{name}.weight", None, None) for name in "qkv")
        if query.shape[0] % self._heads:
            raise ConfigurationError(
                f"cosyvoice.yaml: flow.decoder.estimator.num_heads is {self._heads}, flow.pt has"
                f" {query.shape[0]} channels to share among them: use the released files"
            )
        attended = graph.op(
            "MultiHeadAttention",
            *(layers.linear(normed, weight) for weight in (query, key, value)),
            num_heads=self._heads,
            scale=1 / math.sqrt(query.shape[0] / self._heads),
        )
        out = take_pair(self._weights, f"{prefix}.attn1.to_out.0", None, query.shape[0])
        x = graph.op("Add", x, layers.linear(attended, *out))
        normed = layers.layer_norm(
            x, *take_pair(self._weights, f"{prefix}.norm3", None), _NORM_EPSILON
        )
        widen = take_pair(self._weights, f"{prefix}.ff.net.0.proj", None, None)
        narrow = take_pair(self._weights, f"{prefix}.ff.net.2", None, widen[0].shape[0])
        wide = graph.op("Gelu", layers.linear(normed, *widen))
        return graph.op("Add", x, layers.linear(wide, *narrow))

    def _down(self, prefix: str, x: str) -> str:
        """To half the length, or at the last level a plain convolution."""
        if f"{prefix}.conv.weight" in self._weights:
            halve = take_pair(self._weights, f"{prefix}.conv", None, None, 3)
            return self._layers.convolution(x, *halve, stride=2)
        return self._layers.convolution(x, *take_pair(self._weights, prefix, None, None, 3))

    def _up(self, prefix: str, x: str) -> str:
        """To twice the length, or at the last level a plain convolution."""
        if f"{prefix}.conv.weight" in self._weights:
            double = take_pair(self._weights, f"{prefix}.conv", None, None, 4)
            return self._layers.doubling_convolution(x, *double)
        return self._layers.convolution(x, *take_pair(self._weights, prefix, None, None, 3))

    def _cropped(self, x: str, like: str) -> str:
        """All of x but the frame that halving an odd length and doubling it again has added."""
        graph = self._graph
        length = graph.op("Shape", like, start=1, end=2)
        return graph.op("Slice", x, graph.integers(0), length, graph.integers(1))

    def _write_time_features(self, path: Path) -> None:
        graph = Graph("time_features")
        layers = Layers(graph, Precision.FLOAT32)
        first = take_pair(self._weights, f"{_PREFIX}.time_mlp.linear_1", None, None)
        second = take_pair(self._weights, f"{_PREFIX}.time_mlp.linear_2", None, None)
        t = graph.op("Unsqueeze", graph.input("t", ("N",)), graph.integers(1))
        angles = graph.op("Mul", t, graph.constant(_time_frequencies(first[0].shape[1])))
        waves = graph.op("Concat", graph.op("Sin", angles), graph.op("Cos", angles), axis=-1)
        hidden = layers.mish(layers.linear(layers.swish(layers.linear(waves, *first)), *second))
        weight = np.concatenate([weight for weight, _ in self._time.weights])
        bias = np.concatenate([bias for _, bias in self._time.weights])
        graph.output("features", layers.linear(hidden, weight, bias), ("N", len(bias)))
        graph.save(path)


def _time_frequencies(width: int) -> Array:
    """The frequencies of the sinusoidal time embedding, shape (1, width / 2)."""
    half = width // 2
    step = np.float32(-math.log(10_000.0) / (half - 1))
    frequencies = np.exp(np.arange(half, dtype=np.float32) * step) * np.float32(_TIME_SCALE)
    return np.asarray(frequencies[None], np.float32)
