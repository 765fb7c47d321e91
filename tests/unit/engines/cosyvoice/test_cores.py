"""Sharing cores between decoding and sound."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from utterd.engines.cosyvoice.cores import Cores
from utterd.engines.protocol import CancelledByCallerError, CancelToken
from utterd.errors import EngineFailedError

PATIENCE_S = 10.0


def most_at_once(cores: Cores, expected: int) -> int:
    """How many of eight threads get a core, when each keeps it until `expected` have one."""
    barrier = threading.Barrier(expected)
    lock, working, most = threading.Lock(), 0, 0

    def work(_: int) -> None:
        nonlocal working, most
        with cores.one(CancelToken()):
            with lock:
                working += 1
                most = max(most, working)
            barrier.wait(PATIENCE_S)
            with lock:
                working -= 1

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    return most


@pytest.mark.parametrize(("count", "decoding", "expected"), [(4, False, 4), (2, True, 1)])
def test_decoding_takes_a_core(count: int, expected: int, *, decoding: bool):
    """While the language model works, the others have a core less."""
    cores = Cores(count)
    assert not decoding or cores.claim(0)
    assert most_at_once(cores, expected) == expected


def test_one_core_is_shared():
    """On a single core, sound is made beside the language model all the same."""
    cores = Cores(1)
    assert cores.claim(0)
    assert most_at_once(cores, 1) == 1


def test_the_language_model_waits_until_a_core_is_free():
    """Two threads on one core would take its caches from each other."""
    cores = Cores(2)
    with ThreadPoolExecutor(1) as threads, cores.one(CancelToken()):
        with cores.one(CancelToken()):
            assert not cores.claim(0)
            claim = threads.submit(cores.claim, PATIENCE_S)
        assert claim.result(PATIENCE_S)


def test_a_claimed_core_is_not_given_away():
    """Or a segment whose halves come and go would always be there first."""
    cores, order = Cores(2), []
    with cores.one(CancelToken()):
        with cores.one(CancelToken()):
            assert not cores.claim(0)
        cores.both(lambda: order.append("first"), lambda: order.append("second"))
        assert cores.claim(0)
    assert order == ["first", "second"]
    cores.close()


def test_the_end_of_decoding_frees_a_core():
    """Who waits gets it at once."""
    cores = Cores(2)
    assert cores.claim(0)
    with ThreadPoolExecutor(1) as threads, cores.one(CancelToken()):

        def second() -> str:
            with cores.one(CancelToken()):
                return "in"

        waiting = threads.submit(second)
        cores.release()
        assert waiting.result(PATIENCE_S) == "in"


def test_a_cancelled_wait_ends():
    """A segment that nobody wants does not hold the line up."""
    cores, cancel = Cores(1), CancelToken()

    def wait() -> None:
        with cores.one(cancel):
            pytest.fail("entered")

    with ThreadPoolExecutor(1) as threads:
        with cores.one(CancelToken()):
            waiting = threads.submit(wait)
            cancel.cancel()
            with pytest.raises(CancelledByCallerError):
                waiting.result(PATIENCE_S)
        with cores.one(CancelToken()):
            pass


def test_a_free_core_takes_the_second_of_two():
    """Each waits for the other, so they can only end side by side."""
    cores, barrier = Cores(2), threading.Barrier(2)
    with cores.one(CancelToken()):
        assert cores.both(
            lambda: barrier.wait(PATIENCE_S) >= 0, lambda: barrier.wait(PATIENCE_S) >= 0
        ) == (True, True)
    assert most_at_once(cores, 2) == 2
    cores.close()


def test_without_a_free_core_one_follows_the_other():
    """While the language model works on the second core, nothing is begun beside it."""
    cores, order = Cores(2), []
    assert cores.claim(0)
    with cores.one(CancelToken()):
        cores.both(lambda: order.append("first"), lambda: order.append("second"))
    assert order == ["first", "second"]
    cores.close()


def test_a_failure_beside_is_raised():
    """Neither half's error is lost, and the core is free again."""
    cores = Cores(2)

    def fail() -> None:
        raise EngineFailedError("half of it failed")

    for first, second in ((fail, int), (int, fail)):
        with cores.one(CancelToken()), pytest.raises(EngineFailedError):
            cores.both(first, second)
    assert most_at_once(cores, 2) == 2
    cores.close()


def test_counts_who_waits_for_a_core():
    """A thread is in the queue until it has a core."""
    cores, cancel = Cores(1), CancelToken()
    with ThreadPoolExecutor(1) as threads, cores.one(CancelToken()):
        assert cores.queued() == 0
        waiting = threads.submit(cores.one(cancel).__enter__)
        while not cores.queued():
            pass
        cancel.cancel()
        with pytest.raises(CancelledByCallerError):
            waiting.result(PATIENCE_S)
        assert cores.queued() == 0


def test_cores_are_free_until_one_is_taken():
    """Decoding alone does not count: it is who asks."""
    cores = Cores(2)
    assert cores.claim(0)
    assert cores.are_free()
    with cores.one(CancelToken()):
        assert not cores.are_free()
    assert cores.are_free()
