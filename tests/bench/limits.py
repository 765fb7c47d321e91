"""The real-time factor that no program on this machine could beat."""

from cosyvoice_probes import Probes

from utterd.engines.cosyvoice.manifest import Manifest
from utterd.ops.cpu import usable_cores

# HiFT's residual blocks, which are nearly all of it: channels and samples a mel frame of each
# level, at the size of the release.
_HIFT_LEVELS = ((256, 8), (128, 64))
_HIFT_KERNELS = 3 + 7 + 11
_HIFT_CONVOLUTIONS = 6


def floor(probes: Probes, manifest: Manifest, *, rows: int, euler_steps: int) -> float:
    """Seconds for each second of audio.

    Every product of the estimator and of HiFT at the rate of the best product of matrices, and
    the language model's weights read once for each token of `rows` rows; the rest is free.

    Args:
        probes: of one thread of this machine.
        manifest: of an int8 bundle.
        rows: that share a step of the language model.
        euler_steps: of the flow.
    """
    cores = usable_cores()
    vocoder, token_rate_hz = manifest.vocoder, manifest.flow.token_rate_hz
    frame_rate_hz = vocoder.sample_rate_hz / vocoder.samples_per_frame
    # Guidance evaluates the estimator twice a step; a weight is a byte and a product a frame.
    estimator = manifest.files["estimator.onnx"].size_bytes * frame_rate_hz * euler_steps * 2
    hift = sum(
        channels**2 * _HIFT_KERNELS * _HIFT_CONVOLUTIONS * frame_rate_hz * samples
        for channels, samples in _HIFT_LEVELS
    )
    weights = manifest.files["language_model.onnx"].size_bytes
    return (estimator + hift) / (probes.int8_macs_per_s * cores) + (
        weights * token_rate_hz / rows / probes.read_bytes_per_s
    )
