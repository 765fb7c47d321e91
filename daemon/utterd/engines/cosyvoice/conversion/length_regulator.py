"""The convolutions after the interpolation from token rate to mel rate."""

from pathlib import Path

from utterd.engines.cosyvoice.conversion.encoder import take_pair
from utterd.engines.cosyvoice.conversion.graph import Graph
from utterd.engines.cosyvoice.conversion.layers import Layers
from utterd.engines.cosyvoice.conversion.weights import Weights
from utterd.engines.cosyvoice.manifest import Precision

# Convolution, norm, activation: the activation has no weights.
_MODULES_PER_STAGE = 3


def write_length_regulator(weights: Weights, stages: int, path: Path) -> None:
    """Write the graph: interpolated x (1, T, mel bins) to mu (1, T, mel bins).

    It is small, and always float32.
    """
    graph = Graph("length_regulator")
    layers = Layers(graph, Precision.FLOAT32)
    last = take_pair(
        weights, f"length_regulator.model.{stages * _MODULES_PER_STAGE}", None, None, 1
    )
    mel_bins = last[0].shape[0]
    x = graph.input("x", (1, "T", mel_bins))
    for stage in range(stages):
        number = stage * _MODULES_PER_STAGE
        convolution = take_pair(
            weights, f"length_regulator.model.{number}", mel_bins, mel_bins, None
        )
        norm = take_pair(weights, f"length_regulator.model.{number + 1}", mel_bins)
        x = layers.mish(layers.group_norm(layers.convolution(x, *convolution), 1, *norm))
    graph.output("mu", layers.convolution(x, *last), (1, "T", mel_bins))
    graph.save(path)
