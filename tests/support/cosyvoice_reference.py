"""CosyVoice's modules in plain float64 numpy, straight from their definitions and slow.

They take a checkpoint's tensors and share nothing with the graphs: no cache, no position table, no
folded layer.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Tensors = Mapping[str, Array]


def _linear(tensors: Tensors, prefix: str, x: Array) -> Array:
    return x @ tensors[f"{prefix}.weight"].T.astype(np.float64) + tensors[f"{prefix}.bias"]


def _layer_norm(tensors: Tensors, prefix: str, x: Array, epsilon: float) -> Array:
    normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return normed * tensors[f"{prefix}.weight"] + tensors[f"{prefix}.bias"]


def _softmax(x: Array) -> Array:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _relative_attention(tensors: Tensors, prefix: str, x: Array, *, causal: bool) -> Array:
    u, v = tensors[f"{prefix}.pos_bias_u"], tensors[f"{prefix}.pos_bias_v"]
    heads, width = u.shape
    size = len(x)
    query, key, value = (
        _linear(tensors, f"{prefix}.linear_{name}", x).reshape(size, heads, width) for name in "qkv"
    )
    distances = np.arange(size)[:, None] - np.arange(size)[None]
    frequencies = np.exp(np.arange(0, heads * width, 2) * (-np.log(10_000.0) / (heads * width)))
    encoding = np.empty((size, size, heads * width))
    encoding[..., 0::2] = np.sin(distances[..., None] * frequencies)
    encoding[..., 1::2] = np.cos(distances[..., None] * frequencies)
    position = encoding @ tensors[f"{prefix}.linear_pos.weight"].T.astype(np.float64)
    position = position.reshape(size, size, heads, width)
    scores = np.einsum("ihd,jhd->hij", query + u, key)
    scores += np.einsum("ihd,ijhd->hij", query + v, position)
    scores /= np.sqrt(width)
    if causal:
        scores = np.where(distances >= 0, scores, -np.inf)
    attended = np.einsum("hij,jhd->ihd", _softmax(scores), value)
    return _linear(tensors, f"{prefix}.linear_out", attended.reshape(size, -1))


def _encoder(
    tensors: Tensors,
    prefix: str,
    x: Array,
    *,
    norms: tuple[str, str],
    causal: bool,
    legacy: bool = False,
) -> Array:
    x = _layer_norm(
        tensors, f"{prefix}.embed.out.1", _linear(tensors, f"{prefix}.embed.out.0", x), 1e-5
    )
    x = (np.maximum(x, 0) if legacy else x) * np.sqrt(x.shape[-1])
    number = 0
    while f"{prefix}.encoders.{number}.{norms[0]}.weight" in tensors:
        layer = f"{prefix}.encoders.{number}"
        normed = _layer_norm(tensors, f"{layer}.{norms[0]}", x, 1e-12)
        x = x + _relative_attention(tensors, f"{layer}.self_attn", normed, causal=causal)
        normed = _layer_norm(tensors, f"{layer}.{norms[1]}", x, 1e-12)
        wide = _linear(tensors, f"{layer}.feed_forward.w_1", normed)
        wide = np.maximum(wide, 0) if legacy else wide * _sigmoid(wide)
        x = x + _linear(tensors, f"{layer}.feed_forward.w_2", wide)
        number += 1
    return _layer_norm(tensors, f"{prefix}.after_norm", x, 1e-5)


def _unit(speaker: Array) -> Array:
    return speaker / np.linalg.norm(speaker)


def text_encoding(tensors: Tensors, ids: Array) -> Array:
    """Of `llm.pt`: text tokens (S,) to (S, LM input)."""
    x = _encoder(
        tensors,
        "text_encoder",
        tensors["text_embedding.weight"][ids],
        norms=("norm_mha", "norm_ff"),
        causal=True,
    )
    return _linear(tensors, "text_encoder_affine_layer", x)


def logits(tensors: Tensors, ids: Array, speaker: Array, spoken: Array) -> Array:
    """Of `llm.pt`: logits after the prompt and after each spoken token, (n + 1, tokens + 1)."""
    rows = np.concatenate(
        [
            tensors["llm_embedding.weight"][[0]],
            _linear(tensors, "spk_embed_affine_layer", _unit(speaker))[None],
            text_encoding(tensors, ids),
            tensors["llm_embedding.weight"][[1]],
            tensors["speech_embedding.weight"][spoken],
        ]
    )
    x = _encoder(tensors, "llm", rows, norms=("norm1", "norm2"), causal=True, legacy=True)
    return _linear(tensors, "llm_decoder", x[-len(spoken) - 1 :])


def _convolution(tensors: Tensors, prefix: str, x: Array, stride: int = 1) -> Array:
    """Over (time, channels), zero padding of half the kernel."""
    weight = tensors[f"{prefix}.weight"].astype(np.float64)
    half = weight.shape[2] // 2
    padded = np.pad(x, ((half, half), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2], axis=0)[::stride]
    return np.einsum("tik,oik->to", windows, weight) + tensors[f"{prefix}.bias"]


def _doubling(tensors: Tensors, prefix: str, x: Array) -> Array:
    """A transposed convolution of kernel 4, stride 2, padding 1."""
    weight = tensors[f"{prefix}.weight"].astype(np.float64)
    spread = np.zeros((2 * len(x) + 2, weight.shape[1]))
    for place, row in enumerate(x):
        spread[2 * place : 2 * place + 4] += np.einsum("i,iok->ko", row, weight)
    return spread[1:-1] + tensors[f"{prefix}.bias"]


def _group_norm(tensors: Tensors, prefix: str, x: Array, groups: int) -> Array:
    grouped = x.reshape(len(x), groups, -1)
    mean = grouped.mean((0, 2), keepdims=True)
    deviation = np.sqrt(grouped.var((0, 2), keepdims=True) + 1e-5)
    normed = ((grouped - mean) / deviation).reshape(x.shape)
    return normed * tensors[f"{prefix}.weight"] + tensors[f"{prefix}.bias"]


def _mish(x: Array) -> Array:
    return x * np.tanh(np.log1p(np.exp(x)))


def _gelu(x: Array) -> Array:
    # The error function by its integral, on a grid fine enough for float32.
    grid = np.linspace(-6, 6, 200_001)
    density = np.exp(-np.square(grid) / 2) / np.sqrt(2 * np.pi)
    step = grid[1] - grid[0]
    cumulative = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * step)])
    return x * np.interp(x, grid, cumulative)


def _residual(tensors: Tensors, prefix: str, x: Array, time: Array) -> Array:
    hidden = x
    for block in ("block1", "block2"):
        hidden = _convolution(tensors, f"{prefix}.{block}.block.0", hidden)
        hidden = _mish(_group_norm(tensors, f"{prefix}.{block}.block.1", hidden, 8))
        if block == "block1":
            hidden = hidden + _linear(tensors, f"{prefix}.mlp.1", _mish(time))
    return hidden + _convolution(tensors, f"{prefix}.res_conv", x)


def _transformer(tensors: Tensors, prefix: str, x: Array, heads: int) -> Array:
    normed = _layer_norm(tensors, f"{prefix}.norm1", x, 1e-5)
    query, key, value = (
        (normed @ tensors[f"{prefix}.attn1.to_{name}.weight"].T).reshape(len(x), heads, -1)
        for name in "qkv"
    )
    scores = np.einsum("ihd,jhd->hij", query, key) / np.sqrt(query.shape[-1])
    attended = np.einsum("hij,jhd->ihd", _softmax(scores), value).reshape(len(x), -1)
    x = x + _linear(tensors, f"{prefix}.attn1.to_out.0", attended)
    normed = _layer_norm(tensors, f"{prefix}.norm3", x, 1e-5)
    wide = _gelu(_linear(tensors, f"{prefix}.ff.net.0.proj", normed))
    return x + _linear(tensors, f"{prefix}.ff.net.2", wide)


def _unet_block(tensors: Tensors, prefix: str, x: Array, time: Array, heads: int) -> Array:
    x = _residual(tensors, f"{prefix}.0", x, time)
    number = 0
    while f"{prefix}.1.{number}.norm1.weight" in tensors:
        x = _transformer(tensors, f"{prefix}.1.{number}", x, heads)
        number += 1
    return x


def _velocity(tensors: Tensors, x: Array, t: float, heads: int) -> Array:
    """The estimator on x, mu, speaker and condition side by side: (T, 4 mel) to (T, mel)."""
    prefix = "decoder.estimator"
    half = x.shape[1] // 2
    angles = 1000 * t * np.exp(np.arange(half) * (-np.log(10_000.0) / (half - 1)))
    time = _linear(
        tensors, f"{prefix}.time_mlp.linear_1", np.concatenate([np.sin(angles), np.cos(angles)])
    )
    time = _linear(tensors, f"{prefix}.time_mlp.linear_2", time * _sigmoid(time))
    skipped = []
    level = 0
    while f"{prefix}.down_blocks.{level}.0.res_conv.weight" in tensors:
        block = f"{prefix}.down_blocks.{level}"
        x = _unet_block(tensors, block, x, time, heads)
        skipped.append(x)
        halves = f"{block}.2.conv.weight" in tensors
        x = _convolution(tensors, f"{block}.2.conv" if halves else f"{block}.2", x, 1 + halves)
        level += 1
    number = 0
    while f"{prefix}.mid_blocks.{number}.0.res_conv.weight" in tensors:
        x = _unet_block(tensors, f"{prefix}.mid_blocks.{number}", x, time, heads)
        number += 1
    for step in range(level):
        block, skip = f"{prefix}.up_blocks.{step}", skipped.pop()
        joined = np.concatenate([x[: len(skip)], skip], axis=1)
        x = _unet_block(tensors, block, joined, time, heads)
        if f"{block}.2.conv.weight" in tensors:
            x = _doubling(tensors, f"{block}.2.conv", x)
        else:
            x = _convolution(tensors, f"{block}.2", x)
    x = _convolution(tensors, f"{prefix}.final_block.block.0", x)
    x = _mish(_group_norm(tensors, f"{prefix}.final_block.block.1", x, 8))
    return _convolution(tensors, f"{prefix}.final_proj", x)


def _stretch(x: Array, length: int) -> Array:
    places = np.clip((np.arange(length) + 0.5) * len(x) / length - 0.5, 0, len(x) - 1)
    return np.stack([np.interp(places, np.arange(len(x)), row) for row in x.T], axis=1)


def mel(
    tensors: Tensors, tokens: Array, speaker: Array, noise: Array, *, heads: int, steps: int
) -> Array:
    """Of `flow.pt`: up to 40 speech tokens (n,) to mel (T, mel bins), T the length of the noise."""
    hidden = _encoder(
        tensors,
        "encoder",
        tensors["input_embedding.weight"][tokens],
        norms=("norm_mha", "norm_ff"),
        causal=False,
    )
    mu = _stretch(_linear(tensors, "encoder_proj", hidden), len(noise))
    for number in range(0, 12, 3):
        mu = _convolution(tensors, f"length_regulator.model.{number}", mu)
        mu = _mish(_group_norm(tensors, f"length_regulator.model.{number + 1}", mu, 1))
    mu = _convolution(tensors, "length_regulator.model.12", mu)
    voice = np.tile(_linear(tensors, "spk_embed_affine_layer", _unit(speaker)), (len(mu), 1))
    nothing = np.zeros_like(mu)
    times = 1 - np.cos(np.linspace(0, 1, steps + 1) * np.pi / 2)
    x = noise.astype(np.float64)
    for start, end in pairwise(times):
        given = np.concatenate([x, mu, voice, nothing], axis=1)
        free = np.concatenate([x, nothing, nothing, nothing], axis=1)
        guided, unguided = (_velocity(tensors, part, start, heads) for part in (given, free))
        x = x + (end - start) * (1.7 * guided - 0.7 * unguided)
    return x
