"""The machine's own limits, most of them in processor seconds of one thread, as the stages are."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from utterd.engines.cosyvoice.conversion.graph import Graph
from utterd.engines.cosyvoice.conversion.layers import Layers
from utterd.engines.cosyvoice.manifest import Precision
from utterd.ops.cpu import usable_cores

_REPEATS = 7
_ROWS, _WIDTH = 512, 1024
_READ_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Probes:
    """What this machine can do, now.

    Attributes:
        int8_macs_per_s: multiply-accumulates of a matrix product in one thread, bytes.
        float32_macs_per_s: the same in float32.
        read_bytes_per_s: of memory in one thread, in one run over 256 MiB.
        shared_read_bytes_per_s: of memory by all cores together.
    """

    int8_macs_per_s: float
    float32_macs_per_s: float
    read_bytes_per_s: float
    shared_read_bytes_per_s: float


def processor_s(work: Callable[[], object], repeats: int = _REPEATS) -> float:
    """The median of this thread's processor time, which others on the machine disturb least."""
    durations_s = []
    for _ in range(repeats):
        started_s = time.thread_time()
        work()
        durations_s.append(time.thread_time() - started_s)
    return float(np.median(durations_s))


def probe() -> Probes:
    memory = np.ones(_READ_BYTES // 8)
    macs = _ROWS * _WIDTH * _WIDTH
    return Probes(
        int8_macs_per_s=macs / _product_s(Precision.INT8),
        float32_macs_per_s=macs / _product_s(Precision.FLOAT32),
        read_bytes_per_s=_READ_BYTES / processor_s(memory.sum),
        shared_read_bytes_per_s=_READ_BYTES / _shared_read_s(memory),
    )


def mean_of(one: Probes, other: Probes) -> Probes:
    """What the machine could do between two probes."""
    return Probes(
        **{
            field.name: (getattr(one, field.name) + getattr(other, field.name)) / 2
            for field in fields(Probes)
        }
    )


def _shared_read_s(memory: NDArray[np.float64]) -> float:
    """The least wall time in which all cores together read it once."""
    threads = max(1, int(usable_cores()))
    durations_s = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_REPEATS):
            started_s = time.perf_counter()
            tuple(pool.map(np.sum, np.array_split(memory, threads)))
            durations_s.append(time.perf_counter() - started_s)
    return min(durations_s)


def _product_s(precision: Precision) -> float:
    """One product of (512, 1024) with (1024, 1024), its quantization included."""
    random = np.random.default_rng(0)
    graph = Graph("product")
    weight = random.standard_normal((_WIDTH, _WIDTH), dtype=np.float32)
    x = graph.input("x", (1, "T", _WIDTH))
    graph.output("y", Layers(graph, precision).linear(x, weight), (1, "T", _WIDTH))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph.model().SerializeToString(), options)
    rows = random.standard_normal((1, _ROWS, _WIDTH), dtype=np.float32)
    return processor_s(lambda: session.run(None, {"x": rows}))
