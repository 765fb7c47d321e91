"""The speech language model as one graph for the prompt and for every step after it."""

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from utterd.engines.cosyvoice.conversion.encoder import (
    INNER_EPSILON,
    OUTER_EPSILON,
    Encoder,
    EncoderLayer,
    Pair,
    embedded,
)
from utterd.engines.cosyvoice.conversion.graph import Graph
from utterd.engines.cosyvoice.conversion.layers import Layers
from utterd.engines.cosyvoice.conversion.relative_attention import position_scores, score_sizes
from utterd.engines.cosyvoice.conversion.weights import Array
from utterd.engines.cosyvoice.manifest import Precision

# Keys and values beyond those of the calibration are cut a quarter later than the largest of them.
_CACHE_MARGIN = 1.25
_INT8_CACHE = {
    "kv_cache_bit_width": 8,
    "k_quant_type": "PER_CHANNEL",
    "v_quant_type": "PER_CHANNEL",
}


class LanguageModelWriter:
    """Adds the model's layers to a graph.

    Args:
        model: its weights.
        decoder: the layer that gives the logits.
        precision: of the matrix products.
        cache_peaks: the largest magnitudes of keys and values, (layers, 2, heads, head width). With
            them, caches are int8: a step reads the whole cache, and a quarter of the bytes takes a
            fifth of the time.
    """

    def __init__(
        self, model: Encoder, decoder: Pair, precision: Precision, cache_peaks: Array | None
    ) -> None:
        self._model = model
        self._decoder = decoder
        self._cache_peaks = cache_peaks
        self._graph = Graph("language_model")
        self._layers = Layers(self._graph, precision, by_row=True)

    def write(self, path: Path) -> None:
        """Write the graph: x (B, S, width) to logits (B, speech tokens + 1) of the last row.

        S is the whole prompt with empty caches, or 1. T counts the cached rows and x. Inputs
        besides x: mask (B, 1, S, T), added to the scores; last_row (B,) int32 = T - 1; total (1,)
        int32 = T; per layer the last T rows of its position table, and past_key and past_value
        (B, heads, capacity, head width). present_key and present_value may be bound to the same
        memory as the past.
        """
        graph, layers, model = self._graph, self._layers, self._model
        first = model.layers[0].attention
        x = graph.input("x", ("B", "S", model.width))
        mask = graph.input("mask", ("B", 1, "S", "T"))
        lengths = (
            graph.input("last_row", ("B",), TensorProto.INT32),
            graph.input("total", (1,), TensorProto.INT32),
        )
        positions = [
            graph.input(f"positions_{number}", ("T", first.heads, first.head_width))
            for number in range(len(model.layers))
        ]
        sizes = score_sizes(graph, x, positions[0], first.heads)
        for number, layer in enumerate(model.layers):
            packed = self._packed(layer, x)
            query = graph.op(
                "Add",
                graph.slice(packed, 2, 0, model.width),
                graph.constant(layer.attention.position_minus_content),
            )
            query = graph.reshape(query, -1, first.heads, first.head_width)
            scores = position_scores(graph, query, positions[number], sizes)
            bias = graph.op("Add", graph.op("Transpose", scores, perm=[1, 0, 2, 3]), mask)
            attended = self._attended(number, packed, bias, lengths)
            x = graph.op("Add", x, layers.linear(attended, *layer.attention.out))
            normed = layers.layer_norm(x, *layer.feed_forward_norm, INNER_EPSILON)
            wide = graph.op("Relu", layers.linear(normed, *layer.widen))
            x = graph.op("Add", x, layers.linear(wide, *layer.narrow))
        last = graph.op("Gather", x, graph.constant(np.array(-1, np.int64)), axis=1)
        normed = layers.layer_norm(last, *model.after_norm, OUTER_EPSILON)
        logits = layers.linear(normed, *self._decoder)
        graph.output("logits", logits, ("B", self._decoder[0].shape[0]))
        graph.save(path)

    def _packed(self, layer: EncoderLayer, x: str) -> str:
        """(q + u) / sqrt(d), k and v side by side: one product, as the operator takes them."""
        attention = layer.attention
        normed = self._layers.layer_norm(x, *layer.attention_norm, INNER_EPSILON)
        weights, biases = zip(attention.content_query, attention.key, attention.value, strict=True)
        return self._layers.linear(normed, np.concatenate(weights), np.concatenate(biases))

    def _attended(self, number: int, packed: str, bias: str, lengths: tuple[str, str]) -> str:
        """One layer's attention: q + u meets the keys, and the bias has the rest of the score."""
        graph, attention = self._graph, self._model.layers[number].attention
        elements = TensorProto.FLOAT if self._cache_peaks is None else TensorProto.INT8
        cache = ("B", attention.heads, "C", attention.head_width)
        past = [graph.input(f"past_{kind}_{number}", cache, elements) for kind in ("key", "value")]
        present = [f"present_{kind}_{number}" for kind in ("key", "value")]
        inputs = [packed, "", "", *past, *lengths, "", "", "", bias]
        attributes: dict[str, Any] = {
            "num_heads": attention.heads,
            "kv_num_heads": attention.heads,
            "scale": 1.0,
        }
        if self._cache_peaks is not None:
            scales = self._cache_peaks[number].reshape(2, -1) * np.float32(_CACHE_MARGIN / 127)
            inputs += ["", *(graph.constant(scale) for scale in scales)]
            attributes |= _INT8_CACHE
        attended, *_ = graph.ops(
            "GroupQueryAttention", inputs, [f"attended_{number}", *present], attributes
        )
        for name in present:
            shape = ("B", attention.heads, "P", attention.head_width)
            graph.output_of(name, shape, elements)
        return attended


def input_rows(model: Encoder, x: Array) -> Array:
    """What the LM's input layer makes of x (n, LM in): (n, width), for tables."""
    return np.maximum(embedded(x, model), 0)
