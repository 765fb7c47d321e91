"""The environment of a worker: what libraries read before any code of ours runs there."""

import os

from utterd.engines.telemetry import TELEMETRY_OFF
from utterd.ops.cpu import WorkerPlan

# Otherwise numpy starts a thread a core in each of as many processes.
_THREAD_POOL_SIZES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_MEBIBYTE = 1024 * 1024

# glibc gives each thread a heap of its own, and keeps in it what large arrays leave. In a process
# that speaks eight segments of all lengths, that is as much again as is in use. One that speaks a
# single segment at a time has one such heap, and loses a twentieth of its time without it.
_ALLOCATOR = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(_MEBIBYTE),
    "MALLOC_TRIM_THRESHOLD_": str(16 * _MEBIBYTE),
}


def worker_environment(plan: WorkerPlan) -> dict[str, str]:
    """The daemon's own, with what a worker needs; the allocator's settings as far as it has none.

    Args:
        plan: how much one worker does at once.
    """
    allocator = _ALLOCATOR if plan.concurrency > 1 else {}
    pools = dict.fromkeys(_THREAD_POOL_SIZES, str(plan.threads))
    return allocator | os.environ | pools | TELEMETRY_OFF
