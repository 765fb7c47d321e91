"""The environment of a worker: what libraries read before any code of ours runs there."""

import os

from utterd.engines.telemetry import TELEMETRY_OFF

# Otherwise numpy starts a thread a core in each of as many processes.
_THREAD_POOL_SIZES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_MEBIBYTE = 1024 * 1024

# glibc gives each thread a heap of its own, and keeps in it what large arrays leave. In a process
# that speaks eight segments of all lengths, that is as much again as is in use.
_ALLOCATOR = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(_MEBIBYTE),
    "MALLOC_TRIM_THRESHOLD_": str(16 * _MEBIBYTE),
}


def worker_environment(threads: int) -> dict[str, str]:
    """The daemon's own, with what a worker needs; the allocator's settings as far as it has none.

    Args:
        threads: cores that the worker may keep busy.
    """
    pools = dict.fromkeys(_THREAD_POOL_SIZES, str(threads))
    return _ALLOCATOR | os.environ | pools | TELEMETRY_OFF
