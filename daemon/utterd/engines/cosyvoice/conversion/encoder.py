"""The text encoder and the flow's token encoder: conformers without convolution."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from utterd.engines.cosyvoice.conversion.graph import Graph
from utterd.engines.cosyvoice.conversion.layers import Layers
from utterd.engines.cosyvoice.conversion.relative_attention import (
    RelativeAttention,
    ScoreSizes,
    position_scores,
    position_table,
    score_sizes,
    take_attention,
)
from utterd.engines.cosyvoice.conversion.weights import Array, Weights
from utterd.engines.cosyvoice.manifest import EncoderDims, Precision

INNER_EPSILON = 1e-12
OUTER_EPSILON = 1e-5

Pair = tuple[Array, Array]


def take_pair(weights: Weights, prefix: str, *shape: int | None) -> Pair:
    """Weight and bias of a linear layer or a norm."""
    weight = weights.take(f"{prefix}.weight", *shape)
    return weight, weights.take(f"{prefix}.bias", weight.shape[0])


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    attention_norm: Pair
    attention: RelativeAttention
    feed_forward_norm: Pair
    widen: Pair
    narrow: Pair


@dataclass(frozen=True, slots=True)
class Encoder:
    """The weights of one encoder, `embed` to `after_norm`."""

    embed: Pair
    embed_norm: Pair
    layers: tuple[EncoderLayer, ...]
    after_norm: Pair

    @property
    def width(self) -> int:
        return int(self.embed[0].shape[0])

    def dims(self, positions: int) -> EncoderDims:
        return EncoderDims(
            layers=len(self.layers),
            heads=self.layers[0].attention.heads,
            width=self.width,
            positions=positions,
        )

    def positions(self, first: int, last: int) -> Array:
        """The position tables of all layers, (layers, first - last + 1, heads, head width)."""
        return np.stack([position_table(layer.attention, first, last) for layer in self.layers])


def take_encoder(weights: Weights, prefix: str, norms: tuple[str, str]) -> Encoder:
    """Collect an encoder.

    Args:
        weights: of the file.
        prefix: of its names.
        norms: the names of the norms before attention and before the feed-forward network.
    """
    embed = take_pair(weights, f"{prefix}.embed.out.0", None, None)
    width = embed[0].shape[0]
    layers = []
    for number in range(max(1, weights.count(f"{prefix}.encoders.{{}}."))):
        layer = f"{prefix}.encoders.{number}"
        widen = take_pair(weights, f"{layer}.feed_forward.w_1", None, width)
        layers.append(
            EncoderLayer(
                attention_norm=take_pair(weights, f"{layer}.{norms[0]}", width),
                attention=take_attention(weights, f"{layer}.self_attn", width),
                feed_forward_norm=take_pair(weights, f"{layer}.{norms[1]}", width),
                widen=widen,
                narrow=take_pair(weights, f"{layer}.feed_forward.w_2", width, widen[0].shape[0]),
            )
        )
    return Encoder(
        embed=embed,
        embed_norm=take_pair(weights, f"{prefix}.embed.out.1", width),
        layers=tuple(layers),
        after_norm=take_pair(weights, f"{prefix}.after_norm", width),
    )


def embedded(x: Array, encoder: Encoder) -> Array:
    """What the input layer makes of x (n, in): linear, norm, times sqrt(width). For tables."""
    linear = x.astype(np.float64) @ encoder.embed[0].T + encoder.embed[1]
    centred = linear - linear.mean(-1, keepdims=True)
    normed = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + OUTER_EPSILON)
    scaled = (normed * encoder.embed_norm[0] + encoder.embed_norm[1]) * math.sqrt(encoder.width)
    return np.asarray(scaled, np.float32)


@dataclass(frozen=True, slots=True)
class TextEncoderHead:
    """What follows the text encoder: its affine layer, and the input layer of the LM."""

    affine: Pair
    language_model: Encoder


def write_text_encoder(
    encoder: Encoder, head: TextEncoderHead, precision: Precision, path: Path
) -> None:
    """Write the graph: x (1, S, in) to text_encoding (1, S, LM in) and rows (1, S, LM width).

    Inputs besides x: mask (1, 1, S, S), added to the scores, and per layer the last S rows of its
    position table.
    """
    graph = Graph("text_encoder")
    layers = Layers(graph, precision, by_row=True)
    x = graph.input("x", (1, "S", encoder.embed[0].shape[1]))
    mask = graph.input("mask", (1, 1, "S", "S"))
    x = layers.linear(x, *encoder.embed)
    x = layers.layer_norm(x, *encoder.embed_norm, OUTER_EPSILON)
    x = graph.op("Mul", x, graph.scalar(math.sqrt(encoder.width)))
    x = _encode(graph, layers, encoder, x, row_width="S", mask=mask)
    encoding = layers.linear(x, *head.affine)
    graph.output("text_encoding", encoding, (1, "S", head.affine[0].shape[0]))
    model = head.language_model
    rows = layers.linear(encoding, *model.embed)
    rows = graph.op("Relu", layers.layer_norm(rows, *model.embed_norm, OUTER_EPSILON))
    rows = graph.op("Mul", rows, graph.scalar(math.sqrt(model.width)))
    graph.output("rows", rows, (1, "S", model.width))
    graph.save(path)


def write_flow_encoder(
    encoder: Encoder, projection: Pair, precision: Precision, path: Path
) -> None:
    """Write the graph: embedded tokens x (1, S, width) to h (1, S, mel bins).

    Inputs besides x: per layer the rows S - 1 to 1 - S of its position table.
    """
    graph = Graph("flow_encoder")
    layers = Layers(graph, precision)
    x = graph.input("x", (1, "S", encoder.width))
    x = _encode(graph, layers, encoder, x, row_width="R", mask=None)
    graph.output("h", layers.linear(x, *projection), (1, "S", projection[0].shape[0]))
    graph.save(path)


def _encode(
    graph: Graph, layers: Layers, encoder: Encoder, x: str, *, row_width: str, mask: str | None
) -> str:
    """The layers and the norm after them."""
    first = encoder.layers[0].attention
    positions = [
        graph.input(f"positions_{number}", (row_width, first.heads, first.head_width))
        for number in range(len(encoder.layers))
    ]
    sizes = score_sizes(graph, x, positions[0], first.heads)
    for layer, table in zip(encoder.layers, positions, strict=True):
        normed = layers.layer_norm(x, *layer.attention_norm, INNER_EPSILON)
        x = graph.op("Add", x, _attend(graph, layers, layer.attention, normed, table, sizes, mask))
        normed = layers.layer_norm(x, *layer.feed_forward_norm, INNER_EPSILON)
        wide = layers.swish(layers.linear(normed, *layer.widen))
        x = graph.op("Add", x, layers.linear(wide, *layer.narrow))
    return layers.layer_norm(x, *encoder.after_norm, OUTER_EPSILON)


def _attend(
    graph: Graph,
    layers: Layers,
    attention: RelativeAttention,
    x: str,
    positions: str,
    sizes: ScoreSizes,
    mask: str | None,
) -> str:
    query = layers.linear(x, *attention.content_query)
    moved = graph.op("Add", query, graph.constant(attention.position_minus_content))
    split = graph.reshape(moved, -1, attention.heads, attention.head_width)
    scores = position_scores(graph, split, positions, sizes)
    if mask is None:
        last = graph.op("Slice", scores, graph.integers(0), sizes.queries, graph.integers(3))
        bias = graph.op("Transpose", last, perm=[1, 0, 2, 3])
    else:
        bias = graph.op("Add", graph.op("Transpose", scores, perm=[1, 0, 2, 3]), mask)
    attended = graph.op(
        "MultiHeadAttention",
        query,
        layers.linear(x, *attention.key),
        layers.linear(x, *attention.value),
        "",
        "",
        bias,
        num_heads=attention.heads,
        scale=1.0,
    )
    return layers.linear(attended, *attention.out)
