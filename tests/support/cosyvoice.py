"""CosyVoice checkpoints with random weights, of any size, in the layout of the released one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.torch_zip import save_torch

DATA = Path(__file__).parents[1] / "data" / "cosyvoice"
TINY = DATA / "tiny-sft"
REFERENCE = DATA / "reference.npz"
PRESETS = ("中文女", "中文男", "日语男", "粤语女", "英文女", "英文男", "韩语女")

Shapes = Mapping[str, Sequence[int]]
Tensors = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class Encoder:
    width: int
    heads: int
    inner: int
    layers: int


@dataclass(frozen=True, kw_only=True)
class Dims:
    """The sizes of a checkpoint; the defaults are those of the release."""

    text_tokens: int = 51866
    text_input: int = 512
    text: Encoder = Encoder(width=1024, heads=16, inner=4096, layers=6)
    lm_input: int = 1024
    lm: Encoder = Encoder(width=1024, heads=16, inner=4096, layers=14)
    speech_tokens: int = 4096
    speaker: int = 192
    flow: Encoder = Encoder(width=512, heads=8, inner=2048, layers=6)
    mel: int = 80
    channels: tuple[int, ...] = (256, 256)
    blocks: int = 4
    middle: int = 12
    heads: int = 8
    head_width: int = 64
    hift_channels: int = 512
    f0_channels: int = 512


def _linear(prefix: str, outputs: int, inputs: int) -> Iterator[tuple[str, Sequence[int]]]:
    yield f"{prefix}.weight", (outputs, inputs)
    yield f"{prefix}.bias", (outputs,)


def _convolution(prefix: str, *shape: int, out_axis: int = 0) -> Iterator[tuple[str, Any]]:
    yield f"{prefix}.weight", shape
    yield f"{prefix}.bias", (shape[out_axis],)


def _norm(prefix: str, width: int) -> Iterator[tuple[str, Sequence[int]]]:
    yield f"{prefix}.weight", (width,)
    yield f"{prefix}.bias", (width,)


def _normed(prefix: str, *shape: int, out_axis: int = 0) -> Iterator[tuple[str, Any]]:
    yield f"{prefix}.bias", (shape[out_axis],)
    yield f"{prefix}.parametrizations.weight.original0", (shape[0], 1, 1)
    yield f"{prefix}.parametrizations.weight.original1", shape


def _encoder(prefix: str, inputs: int, dims: Encoder, norms: Sequence[str]) -> Iterator[Any]:
    yield from _linear(f"{prefix}.embed.out.0", dims.width, inputs)
    yield from _norm(f"{prefix}.embed.out.1", dims.width)
    yield from _norm(f"{prefix}.after_norm", dims.width)
    for number in range(dims.layers):
        layer = f"{prefix}.encoders.{number}"
        for bias in ("pos_bias_u", "pos_bias_v"):
            yield f"{layer}.self_attn.{bias}", (dims.heads, dims.width // dims.heads)
        for name in ("linear_q", "linear_k", "linear_v", "linear_out"):
            yield from _linear(f"{layer}.self_attn.{name}", dims.width, dims.width)
        yield f"{layer}.self_attn.linear_pos.weight", (dims.width, dims.width)
        yield from _linear(f"{layer}.feed_forward.w_1", dims.inner, dims.width)
        yield from _linear(f"{layer}.feed_forward.w_2", dims.width, dims.inner)
        for norm in norms:
            yield from _norm(f"{layer}.{norm}", dims.width)


def llm_shapes(dims: Dims) -> Shapes:
    def shapes() -> Iterator[Any]:
        yield "text_embedding.weight", (dims.text_tokens, dims.text_input)
        yield from _encoder("text_encoder", dims.text_input, dims.text, ("norm_ff", "norm_mha"))
        yield from _linear("text_encoder_affine_layer", dims.lm_input, dims.text.width)
        yield "llm_embedding.weight", (2, dims.lm_input)
        yield from _encoder("llm", dims.lm_input, dims.lm, ("norm1", "norm2"))
        yield from _linear("llm_decoder", dims.speech_tokens + 1, dims.lm.width)
        yield "speech_embedding.weight", (dims.speech_tokens, dims.lm_input)
        yield from _linear("spk_embed_affine_layer", dims.lm_input, dims.speaker)

    return dict(shapes())


def _unet_block(prefix: str, inputs: int, outputs: int, dims: Dims) -> Iterator[Any]:
    yield from _linear(f"{prefix}.0.mlp.1", outputs, 4 * dims.channels[0])
    for block, width in (("block1", inputs), ("block2", outputs)):
        yield from _convolution(f"{prefix}.0.{block}.block.0", outputs, width, 3)
        yield from _norm(f"{prefix}.0.{block}.block.1", outputs)
    yield from _convolution(f"{prefix}.0.res_conv", outputs, inputs, 1)
    inner = dims.heads * dims.head_width
    for number in range(dims.blocks):
        block = f"{prefix}.1.{number}"
        yield from _norm(f"{block}.norm1", outputs)
        for name in "qkv":
            yield f"{block}.attn1.to_{name}.weight", (inner, outputs)
        yield from _linear(f"{block}.attn1.to_out.0", outputs, inner)
        yield from _norm(f"{block}.norm3", outputs)
        yield from _linear(f"{block}.ff.net.0.proj", 4 * outputs, outputs)
        yield from _linear(f"{block}.ff.net.2", outputs, 4 * outputs)


def _estimator(prefix: str, dims: Dims) -> Iterator[Any]:
    channels, inputs = dims.channels, 4 * dims.mel
    yield from _linear(f"{prefix}.time_mlp.linear_1", 4 * channels[0], inputs)
    yield from _linear(f"{prefix}.time_mlp.linear_2", 4 * channels[0], 4 * channels[0])
    last = len(channels) - 1
    for level, (width, outputs) in enumerate(zip((inputs, *channels), channels, strict=False)):
        yield from _unet_block(f"{prefix}.down_blocks.{level}", width, outputs, dims)
        name = "2" if level == last else "2.conv"
        yield from _convolution(f"{prefix}.down_blocks.{level}.{name}", outputs, outputs, 3)
    for number in range(dims.middle):
        yield from _unet_block(f"{prefix}.mid_blocks.{number}", channels[-1], channels[-1], dims)
    upward = (*channels[::-1], channels[0])
    for level, (width, outputs) in enumerate(pairwise(upward)):
        yield from _unet_block(f"{prefix}.up_blocks.{level}", 2 * width, outputs, dims)
        name, kernel = ("2", 3) if level == last else ("2.conv", 4)
        yield from _convolution(f"{prefix}.up_blocks.{level}.{name}", outputs, outputs, kernel)
    yield from _convolution(f"{prefix}.final_block.block.0", channels[0], channels[0], 3)
    yield from _norm(f"{prefix}.final_block.block.1", channels[0])
    yield from _convolution(f"{prefix}.final_proj", dims.mel, channels[0], 1)


def flow_shapes(dims: Dims) -> Shapes:
    def shapes() -> Iterator[Any]:
        yield "input_embedding.weight", (dims.speech_tokens, dims.flow.width)
        yield from _linear("spk_embed_affine_layer", dims.mel, dims.speaker)
        yield from _encoder("encoder", dims.flow.width, dims.flow, ("norm_ff", "norm_mha"))
        yield from _linear("encoder_proj", dims.mel, dims.flow.width)
        yield from _estimator("decoder.estimator", dims)
        for number in range(0, 12, 3):
            yield from _convolution(f"length_regulator.model.{number}", dims.mel, dims.mel, 3)
            yield from _norm(f"length_regulator.model.{number + 1}", dims.mel)
        yield from _convolution("length_regulator.model.12", dims.mel, dims.mel, 1)

    return dict(shapes())


def _hift_block(prefix: str, channels: int, kernel: int) -> Iterator[Any]:
    for number in range(3):
        for convolutions, activations in (("convs1", "activations1"), ("convs2", "activations2")):
            yield from _normed(f"{prefix}.{convolutions}.{number}", channels, channels, kernel)
            yield f"{prefix}.{activations}.{number}.alpha", (channels,)


def hift_shapes(dims: Dims) -> Shapes:
    base = dims.hift_channels

    def shapes() -> Iterator[Any]:
        yield from _linear("m_source.l_linear", 1, 9)
        yield from _normed("conv_pre", base, dims.mel, 7)
        for level, (stride, kernel) in enumerate(((16, 7), (1, 11))):
            channels = base >> (level + 1)
            yield from _normed(f"ups.{level}", 2 * channels, channels, 16, out_axis=1)
            yield from _convolution(f"source_downs.{level}", channels, 18, stride)
            yield from _hift_block(f"source_resblocks.{level}", channels, kernel)
            for number, width in enumerate((3, 7, 11)):
                yield from _hift_block(f"resblocks.{3 * level + number}", channels, width)
        yield from _normed("conv_post", 18, base >> 2, 7)
        for number in range(5):
            inputs = dims.f0_channels if number else dims.mel
            yield from _normed(f"f0_predictor.condnet.{2 * number}", dims.f0_channels, inputs, 3)
        yield from _linear("f0_predictor.classifier", 1, dims.f0_channels)

    return dict(shapes())


def random_tensors(shapes: Shapes, random: np.random.Generator) -> Tensors:
    """Weights of a scale at which every layer keeps the size of what goes through it."""
    return {name: _random_tensor(name, tuple(shape), random) for name, shape in shapes.items()}


def _random_tensor(
    name: str, shape: tuple[int, ...], random: np.random.Generator
) -> NDArray[np.float32]:
    noise = random.standard_normal(shape, dtype=np.float32)
    if name.startswith("conv_post") and name.endswith("original0"):
        # Log magnitudes of which the exponential neither vanishes nor is clipped.
        return 0.3 + noise / 100
    if name.endswith(("alpha", "original0")) or (len(shape) == 1 and name.endswith(".weight")):
        return 1 + noise / 10
    if name == "f0_predictor.classifier.bias":
        return 150 + noise
    if len(shape) == 1 or "pos_bias" in name:
        return noise / 10
    if "embedding" in name:
        return noise
    return noise / np.sqrt(np.prod(shape[1:], dtype=np.float32))


def write_checkpoint(directory: Path, dims: Dims, seed: int = 0) -> Path:
    """A whole directory of `dims`, with the settings of the release."""
    random = np.random.default_rng(seed)
    directory.mkdir(parents=True, exist_ok=True)
    for name, shapes in (
        ("llm", llm_shapes(dims)),
        ("flow", flow_shapes(dims)),
        ("hift", hift_shapes(dims)),
    ):
        save_torch(directory / f"{name}.pt", random_tensors(shapes, random))
    speakers = {
        name: {"embedding": random.standard_normal((1, dims.speaker), dtype=np.float32)}
        for name in PRESETS
    }
    save_torch(directory / "spk2info.pt", speakers)
    settings = (TINY / "cosyvoice.yaml").read_text(encoding="utf-8")
    # Of the estimator's heads nothing else tells.
    settings = settings.replace("            num_heads: 2", f"            num_heads: {dims.heads}")
    (directory / "cosyvoice.yaml").write_text(settings, encoding="utf-8")
    return directory
