import pytest

from utterd.ops.status import State, sentence_of


@pytest.mark.parametrize(
    ("state", "facts", "sentence"),
    [
        (State.STARTING, {}, "starting: loading the engine"),
        (State.CONNECTING, {}, "connecting: waiting for RabbitMQ at mq:5672"),
        (State.CONSUMING, {"busy": 2}, "consuming, 2 of 2 busy"),
        (State.CONSUMING, {"queued": 14, "busy": 2}, "consuming, 2 of 2 busy, 14 queued"),
        (State.CONSUMING, {"queued": 0}, "consuming, 0 of 2 busy, 0 queued"),
        (
            State.PAUSED,
            {"faults": {"store": "bucket utterances answers 403", "engine": "no worker"}},
            "paused: bucket utterances answers 403; no worker",
        ),
        (
            State.HOLDING_OFF,
            {},
            "holding off: jobs were only taken to be given back, until all stays well",
        ),
        (State.DRAINING, {"in_hand": 1}, "draining: 1 job in hand"),
        (State.DRAINING, {"in_hand": 3}, "draining: 3 jobs in hand"),
    ],
)
def test_a_sentence_tells_what_the_daemon_does(state, facts, sentence):
    """One line that a person understands at night."""
    quiet = {"slots": 2, "busy": 0, "in_hand": 0, "queued": None, "faults": {}}
    assert sentence_of(state, **(quiet | facts), broker="mq:5672") == sentence
