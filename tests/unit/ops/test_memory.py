"""What a process holds."""

import os

from utterd.ops.memory import resident_bytes, return_freed_memory


def test_a_process_that_is_gone_holds_nothing():
    """Who watches workers needs no try around it."""
    assert resident_bytes(2**22 + 1) == 0
    assert resident_bytes(os.getpid()) > 0


def test_freed_memory_is_returned():
    """Small blocks below one that is still used stay resident until they are returned."""
    blocks = [bytes(2000) for _ in range(20_000)]
    last = bytes(2000)
    del blocks
    before = resident_bytes(os.getpid())

    return_freed_memory()

    assert resident_bytes(os.getpid()) < before - 10_000_000
    assert last
