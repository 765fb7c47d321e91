"""What a refusal of the broker means."""

import pytest
from aiormq.exceptions import (
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ConnectionFrameError,
    DeliveryError,
)
from pamqp.commands import Basic

from utterd.broker.refusal import blames_the_message, explained


@pytest.mark.parametrize(
    ("use", "remedy"), [("dead", "`utterd dead list`"), ("retry", "wait"), ("events", "subscriber")]
)
def test_a_refusal_names_the_queue_and_the_remedy(use, remedy):
    """Not the number of a delivery, which tells nobody anything."""
    sentence = explained(DeliveryError(None, Basic.Nack(18)), "tts.x", "the queue tts.x", use)
    assert sentence.startswith("the queue tts.x takes no more: ")
    assert remedy in sentence
    assert "delivery_tag" not in sentence


def test_what_is_missing_is_to_be_declared():
    """In the broker's words, which name it."""
    fault = ChannelNotFoundEntity("NOT_FOUND - no exchange 'tts.dead' in vhost '/'")
    sentence = explained(fault, "tts.dead", "the queue tts.dead", "dead")
    assert "no exchange 'tts.dead'" in sentence
    assert sentence.endswith(": run `utterd topology apply`")


@pytest.mark.parametrize("fault", [TimeoutError(), ConnectionError("x" * 1000)])
def test_any_other_fault_is_told_in_short(fault):
    """By its name where it has no words."""
    assert 0 < len(explained(fault, "tts.dead", "the queue tts.dead", "dead")) <= 200


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [
        (ConnectionFrameError(501, "FRAME_ERROR"), True),
        (ChannelPreconditionFailed("invalid message"), True),
        (DeliveryError(None, Basic.Nack(1)), False),
        (ConnectionError("lost"), False),
    ],
)
def test_a_message_is_blamed_for_what_it_is_only(fault, verdict):
    """A full queue or a lost connection says nothing about it."""
    assert blames_the_message(fault) is verdict
