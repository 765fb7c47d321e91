"""The environment of a worker."""

from utterd.engines.worker_environment import worker_environment


def test_a_worker_has_what_its_libraries_read(monkeypatch):
    """One thread pool's size for all of them, few heaps, and no telemetry, whatever stood there."""
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    environment = worker_environment(2)
    assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "2"
    assert environment["ORT_DISABLE_TELEMETRY"] == "1"
    assert environment["MALLOC_ARENA_MAX"] == "2"


def test_an_operator_may_set_the_allocator(monkeypatch):
    """What the daemon was started with is kept."""
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    assert worker_environment(1)["MALLOC_ARENA_MAX"] == "8"
