"""Transformer-XL style relative-position attention, as ESPnet writes it.

The score of query i and key j is ((q_i + u) k_j + (q_i + v) P(i - j)) / sqrt(d). P(r) = W pe(r)
depends on the distance alone, so a table of it is made once, in descending order of r: what a
sequence needs is then one contiguous run of the table. Source: Dai et al. 2019, arXiv 1901.02860,
appendix B.
"""

import math
from dataclasses import dataclass

import numpy as np

from utterd.engines.cosyvoice.conversion.graph import END, Graph
from utterd.engines.cosyvoice.conversion.weights import Array, Weights

MASKED = -1e9
"""Added to the score of a key that must not be seen."""


@dataclass(frozen=True, slots=True)
class RelativeAttention:
    """The weights of one layer's attention."""

    query: tuple[Array, Array]
    key: tuple[Array, Array]
    value: tuple[Array, Array]
    out: tuple[Array, Array]
    position: Array
    content_bias: Array
    position_bias: Array

    @property
    def heads(self) -> int:
        return int(self.content_bias.shape[0])

    @property
    def head_width(self) -> int:
        return int(self.content_bias.shape[1])

    @property
    def content_query(self) -> tuple[Array, Array]:
        """The projection to (q + u) / sqrt(d).

        With the scale in it, products with single rows take the kernel that copies no keys.
        """
        scale = self._scale
        return self.query[0] * scale, (self.query[1] + self.content_bias.reshape(-1)) * scale

    @property
    def position_minus_content(self) -> Array:
        """What turns (q + u) / sqrt(d) into (q + v) / sqrt(d)."""
        return np.asarray((self.position_bias - self.content_bias).reshape(-1) * self._scale)

    @property
    def _scale(self) -> np.float32:
        return np.float32(1 / math.sqrt(self.head_width))


def take_attention(weights: Weights, prefix: str, width: int) -> RelativeAttention:
    def pair(name: str) -> tuple[Array, Array]:
        return (
            weights.take(f"{prefix}.{name}.weight", width, width),
            weights.take(f"{prefix}.{name}.bias", width),
        )

    content_bias = weights.take(f"{prefix}.pos_bias_u", None, None)
    return RelativeAttention(
        query=pair("linear_q"),
        key=pair("linear_k"),
        value=pair("linear_v"),
        out=pair("linear_out"),
        position=weights.take(f"{prefix}.linear_pos.weight", width, width),
        content_bias=content_bias,
        position_bias=weights.take(f"{prefix}.pos_bias_v", *content_bias.shape),
    )


def position_table(attention: RelativeAttention, first: int, last: int) -> Array:
    """P(r) for r from first down to last, shape (first - last + 1, heads, head width).

    The encoding is computed in float32 as the original does, so that far positions round alike.
    """
    width = attention.position.shape[0]
    distances = np.arange(first, last - 1, -1, dtype=np.float32)[:, None]
    exponents = np.arange(0, width, 2, dtype=np.float32) * np.float32(-math.log(10_000.0) / width)
    angles = distances * np.exp(exponents)
    encoding = np.empty((len(distances), width), np.float32)
    encoding[:, 0::2], encoding[:, 1::2] = np.sin(angles), np.cos(angles)
    return (encoding @ attention.position.T).reshape(-1, attention.heads, attention.head_width)


def position_scores(graph: Graph, queries: str, positions: str, sizes: "ScoreSizes") -> str:
    """(q_i + v) P(i - j) / sqrt(d) for all i and j.

    Args:
        graph: gets the nodes.
        queries: (q + v) / sqrt(d), (batch * queries, heads, head width).
        positions: rows of the table in descending order, (row width, heads, head width).
        sizes: the shapes, as nodes.

    Returns:
        (heads, batch, queries, row width). Its first `keys` columns count; right of a causal
        query's own key they are meaningless.
    """
    scores = graph.op(
        "FusedMatMul",
        queries,
        positions,
        transBatchA=1,
        transBatchB=1,
        transB=1,
    )
    # Row i starts at distance first - i: one padded column makes every row one longer, so that
    # reading it with rows of the old width moves each row one further than the one before.
    padded = graph.op("Pad", scores, graph.integers(0, 0, 1, 0, 0, 0), graph.scalar(0.0))
    rows = graph.op("Reshape", padded, sizes.flat)
    tail = graph.op("Slice", rows, sizes.queries, graph.integers(END), graph.integers(2))
    return graph.op("Reshape", tail, sizes.rows)


@dataclass(frozen=True, slots=True)
class ScoreSizes:
    """Shapes that all layers of a graph share, as names of int64 vectors.

    Attributes:
        queries: (queries,).
        flat: (heads, batch, -1).
        rows: (heads, batch, queries, row width).
    """

    queries: str
    flat: str
    rows: str


def score_sizes(graph: Graph, x: str, positions: str, heads: int) -> ScoreSizes:
    """Shapes from x (batch, queries, width) and positions (row width, heads, head width)."""
    batch = graph.op("Shape", x, start=0, end=1)
    queries = graph.op("Shape", x, start=1, end=2)
    row_width = graph.op("Shape", positions, start=0, end=1)
    head_count = graph.integers(heads)
    return ScoreSizes(
        queries=queries,
        flat=graph.op("Concat", head_count, batch, graph.integers(-1), axis=0),
        rows=graph.op("Concat", head_count, batch, queries, row_width, axis=0),
    )
