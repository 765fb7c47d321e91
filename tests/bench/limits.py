"""What this machine could do at best: products of int8 matrices, and reading memory."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from utterd.engines.cosyvoice.manifest import Manifest
from utterd.ops.cpu import usable_cores

_ROWS, _INNER, _COLUMNS = 344, 1024, 1024
_BUFFER_BYTES = 256 * 1024 * 1024
_REPEATS = 7
_MEL_FRAMES_A_SECOND = 22_050 / 256
_TOKENS_A_SECOND = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLimits:
    """Rates of all usable cores together.

    Attributes:
        products_a_second: multiplications of int8, each with its addition.
        bytes_a_second: that are read from memory.
    """

    products_a_second: float
    bytes_a_second: float


def probe_machine() -> MachineLimits:
    """Measure both, each as the best of a few runs on every usable core at once."""
    session, left = _product()
    buffer = np.ones(_BUFFER_BYTES // 8, np.int64)
    products = _ROWS * _INNER * _COLUMNS
    return MachineLimits(
        products_a_second=_rate(lambda: session.run(None, {"a": left}), products, repeat=20),
        bytes_a_second=_rate(buffer.sum, _BUFFER_BYTES, repeat=1),
    )


def floor(limits: MachineLimits, manifest: Manifest, *, rows: int, euler_steps: int) -> float:
    """The real-time factor that no program on this machine could beat.

    Every product of the estimator and of HiFT at the rate of the best product of matrices, and
    the language model's weights read once for each token of `rows` rows; the rest is free.

    Args:
        limits: of this machine.
        manifest: of the bundle.
        rows: that share a step of the language model.
        euler_steps: of the flow.
    """
    estimator = manifest.files["estimator.onnx"].size_bytes
    # Guidance evaluates the estimator twice a step; in int8 a weight is a byte.
    flow = estimator * _MEL_FRAMES_A_SECOND * euler_steps * 2
    vocoder = _hift_products_a_second()
    weights = manifest.files["language_model.onnx"].size_bytes
    return (flow + vocoder) / limits.products_a_second + (
        weights * _TOKENS_A_SECOND / rows / limits.bytes_a_second
    )


def _hift_products_a_second() -> float:
    """Of HiFT's residual blocks, which are nearly all of it, at the size of the release."""
    kernels = 3 + 7 + 11
    return sum(
        channels**2 * kernels * 6 * _MEL_FRAMES_A_SECOND * upsampled
        for channels, upsampled in ((256, 8), (128, 64))
    )


def _product() -> tuple[onnxruntime.InferenceSession, np.ndarray]:
    random = np.random.default_rng(0)
    weights = random.integers(-127, 127, (_INNER, _COLUMNS)).astype(np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "product",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [_ROWS, _INNER])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [_ROWS, _COLUMNS])],
        [numpy_helper.from_array(weights, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session, random.integers(0, 255, (_ROWS, _INNER)).astype(np.uint8)


def _rate(work: Callable[[], object], amount: float, *, repeat: int) -> float:
    cores = max(1, int(usable_cores()))

    def repeated(_: int) -> None:
        for _ in range(repeat):
            work()

    best_s = float("inf")
    with ThreadPoolExecutor(cores) as threads:
        for _ in range(_REPEATS):
            started_s = time.perf_counter()
            list(threads.map(repeated, range(cores)))
            best_s = min(best_s, time.perf_counter() - started_s)
    return amount * repeat * cores / best_s
