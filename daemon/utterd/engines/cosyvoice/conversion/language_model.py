"""The speech language model as one graph for the prompt and for every step after it."""

from pathlib import Path

import numpy as np
from onnx import TensorProto

from utterd.engines.cosyvoice.conversion.encoder import (
    INNER_EPSILON,
    OUTER_EPSILON,
    Encoder,
    Pair,
    embedded,
)
from utterd.engines.cosyvoice.conversion.graph import Graph
from utterd.engines.cosyvoice.conversion.layers import Layers, LinearMaths
from utterd.engines.cosyvoice.conversion.relative_attention import (
    RelativeAttention,
    ScoreSizes,
    position_scores,
    score_sizes,
)
from utterd.engines.cosyvoice.conversion.weights import Array


def write_language_model(model: Encoder, decoder: Pair, maths: LinearMaths, path: Path) -> None:
    """Write the graph: x (B, S, width) to logits (B, speech tokens + 1) of the last row.

    S is the whole prompt with empty caches, or 1. T counts the cached rows and x. Inputs besides x:
    mask (B, 1, S, T), added to the scores; last_row (B,) int32 = T - 1; total (1,) int32 = T; per
    layer the last T rows of its position table, and past_key and past_value (B, heads, capacity,
    head width). present_key and present_value may be bound to the same memory as the past.
    """
    graph = Graph("language_model")
    layers = Layers(graph, maths)
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
        normed = layers.layer_norm(x, *layer.attention_norm, INNER_EPSILON)
        attended = _attend(
            graph,
            layers,
            layer.attention,
            normed,
            number,
            (positions[number], mask),
            sizes,
            lengths,
        )
        x = graph.op("Add", x, attended)
        normed = layers.layer_norm(x, *layer.feed_forward_norm, INNER_EPSILON)
        wide = graph.op("Relu", layers.linear(normed, *layer.widen))
        x = graph.op("Add", x, layers.linear(wide, *layer.narrow))
    last = graph.op("Gather", x, graph.constant(np.array(-1, np.int64)), axis=1)
    normed = layers.layer_norm(last, *model.after_norm, OUTER_EPSILON)
    graph.output("logits", layers.linear(normed, *decoder), ("B", decoder[0].shape[0]))
    graph.save(path)


def _attend(
    graph: Graph,
    layers: Layers,
    attention: RelativeAttention,
    x: str,
    number: int,
    seen: tuple[str, str],
    sizes: ScoreSizes,
    lengths: tuple[str, str],
) -> str:
    """One layer's attention; the operator scores q + u with the keys and takes the rest as bias."""
    positions, mask = seen
    width = attention.heads * attention.head_width
    query, query_bias = attention.content_query
    packed = layers.linear(
        x,
        np.concatenate([query, attention.key[0], attention.value[0]]),
        np.concatenate([query_bias, attention.key[1], attention.value[1]]),
    )
    moved = graph.op(
        "Add",
        graph.slice(packed, 2, 0, width),
        graph.constant(attention.position_minus_content),
    )
    split = graph.reshape(moved, -1, attention.heads, attention.head_width)
    scores = position_scores(graph, split, positions, sizes)
    bias = graph.op("Add", graph.op("Transpose", scores, perm=[1, 0, 2, 3]), mask)
    cache = ("B", attention.heads, "C", attention.head_width)
    past = (graph.input(f"past_key_{number}", cache), graph.input(f"past_value_{number}", cache))
    present = (f"present_key_{number}", f"present_value_{number}")
    attended, *_ = graph.ops(
        "GroupQueryAttention",
        [packed, "", "", *past, *lengths, "", "", "", bias],
        [f"attended_{number}", *present],
        {
            "num_heads": attention.heads,
            "kv_num_heads": attention.heads,
            "scale": 1.0,
        },
    )
    for name in present:
        graph.output_of(name, ("B", attention.heads, "P", attention.head_width))
    return layers.linear(attended, *attention.out)


def input_rows(model: Encoder, x: Array) -> Array:
    """What the LM's input layer makes of x (n, LM in): (n, width), for tables."""
    return np.maximum(embedded(x, model), 0)
