"""When the language model steps and when it rests."""

import pytest

from utterd.engines.cosyvoice.pace import should_step


@pytest.mark.parametrize("in_hand", range(1, 12))
def test_never_rests_without_a_queue(in_hand: int):
    """Nothing else would use the core: a lone segment is not held up."""
    assert should_step(in_hand, rows=8, queued=0)


@pytest.mark.parametrize("queued", [1, 5])
def test_rests_while_others_wait_for_its_core(queued: int):
    """The fuller the batch, the cheaper its rows, and the core does not idle."""
    assert not should_step(7, rows=8, queued=queued)


@pytest.mark.parametrize("in_hand", [8, 20])
def test_a_full_batch_goes_on(in_hand: int):
    """Waiting would not widen it."""
    assert should_step(in_hand, rows=8, queued=3)
