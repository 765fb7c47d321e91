"""The environment of a worker."""

from utterd.engines.worker_environment import worker_environment
from utterd.ops.cpu import WorkerPlan

SHARED = WorkerPlan(workers=1, concurrency=8, threads=2)


def test_a_worker_has_what_its_libraries_read(monkeypatch):
    """One thread pool's size for all of them, few heaps, and no telemetry, whatever stood there."""
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    environment = worker_environment(SHARED)
    assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "2"
    assert environment["ORT_DISABLE_TELEMETRY"] == "1"
    assert environment["MALLOC_ARENA_MAX"] == "2"


def test_an_operator_may_set_the_allocator(monkeypatch):
    """What the daemon was started with is kept."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    assert worker_environment(SHARED)["MALLOC_ARENA_MAX"] == "8"


def test_a_worker_with_a_single_thread_that_speaks_keeps_its_heap(monkeypatch):
    """What it gives back to the kernel, it takes again for the next segment."""
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    alone = WorkerPlan(workers=2, concurrency=1, threads=1)
    assert not any(name.startswith("MALLOC_") for name in worker_environment(alone))
