"""How far HiFT sees: what lies further away changes nothing, so that halves can be made apart."""

import math

from utterd.engines.cosyvoice.conversion.vocoder import HiftShape
from utterd.engines.cosyvoice.conversion.weights import Weights


def context_frames(weights: Weights, shape: HiftShape) -> int:
    """Mel frames before and after its own that a sample depends on at most.

    Distances add up from the spectrum back to the mel, in frames of the spectrum, of which the
    last level has one for each of its own samples.

    Args:
        weights: of `hift.pt`; kernels are as long as the tensors are.
        shape: rates and dilations.
    """

    def half(name: str) -> int:
        return int(weights.take_normed(name, None, None, None).shape[2]) // 2

    def residual(prefix: str, dilations: tuple[int, ...]) -> int:
        return sum(
            half(f"{prefix}.convs1.{number}") * dilation + half(f"{prefix}.convs2.{number}")
            for number, dilation in enumerate(dilations)
        )

    kernels, stride = len(shape.dilations), 1
    reach, source_reach = half("conv_post"), 0
    for level, rate in reversed(list(enumerate(shape.upsample_rates))):
        reach += stride * max(
            residual(f"resblocks.{level * kernels + kernel}", dilations)
            for kernel, dilations in enumerate(shape.dilations)
        )
        source = residual(f"source_resblocks.{level}", shape.source_dilations[level])
        down = 2 * half(f"source_downs.{level}") + 1
        source_reach = max(source_reach, reach + stride * source + down)
        # The frame that is put before the last level moves all after it.
        reach += 1
        up = 2 * half(f"ups.{level}")
        stride *= rate
        reach += stride * math.ceil(up / rate)
    reach += stride * half("conv_pre")
    return math.ceil(max(reach, source_reach) / stride)
