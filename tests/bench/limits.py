"""The real-time factor that no program on this machine could beat."""

from cosyvoice_probes import Probes

from utterd.engines.cosyvoice.manifest import Manifest
from utterd.ops.cpu import usable_cores

# Of the release's estimator: of its sixteen levels of four transformer blocks, the first and the
# last see every mel frame, those between them every second one.
_OUTER_LEVELS, _INNER_LEVELS, _BLOCKS = 2, 14, 4
_OUTER_WEIGHTS = 10_200_000
_ATTENTION_WIDTH = 512

# HiFT's residual blocks, which are nearly all of it: channels and samples a mel frame of each
# level, at the size of the release.
_HIFT_LEVELS = ((256, 8), (128, 64))
_HIFT_KERNELS = 3 + 7 + 11
_HIFT_CONVOLUTIONS = 6


def floor(
    probes: Probes, manifest: Manifest, *, rows: int, euler_steps: int, segment_s: float
) -> float:
    """Seconds for each second of audio.

    Every product with a weight of the estimator and of HiFT at the rate of the best product of
    int8 matrices, every product of attention at that of float32, on all cores, and the language
    model's weights read once for each token of `rows` rows, at the rate of all cores together; the
    rest is free.

    Args:
        probes: of this machine.
        manifest: of an int8 bundle.
        rows: that share a step of the language model.
        euler_steps: of the flow.
        segment_s: duration of a segment, for attention is quadratic.
    """
    vocoder, token_rate_hz = manifest.vocoder, manifest.flow.token_rate_hz
    frame_rate_hz = vocoder.sample_rate_hz / vocoder.samples_per_frame
    # Guidance evaluates the estimator twice a step.
    evaluations = 2 * euler_steps
    # A weight is a byte, and a product a frame.
    weights = manifest.files["estimator.onnx"].size_bytes
    estimator = (_OUTER_WEIGHTS + (weights - _OUTER_WEIGHTS) / 2) * frame_rate_hz * evaluations
    # Of a frame with every other one: with keys, and with values.
    pairs = 2 * _ATTENTION_WIDTH * _BLOCKS * frame_rate_hz**2 * segment_s
    attention = pairs * (_OUTER_LEVELS + _INNER_LEVELS / 4) * evaluations
    hift = sum(
        channels**2 * _HIFT_KERNELS * _HIFT_CONVOLUTIONS * frame_rate_hz * samples
        for channels, samples in _HIFT_LEVELS
    )
    products_s = (estimator + hift) / probes.int8_macs_per_s + attention / probes.float32_macs_per_s
    read_bytes = manifest.files["language_model.onnx"].size_bytes * token_rate_hz / rows
    return products_s / usable_cores() + read_bytes / probes.shared_read_bytes_per_s
