"""How a job died, read from its headers."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.broker.deaths import Death, visible
from utterd.broker.message import Message
from utterd.broker.obituary import read_obituary
from utterd.config import BrokerSettings, Lane

SETTINGS = BrokerSettings()
NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)

BURIED = {
    "x-utterd-error-code": "engine_failed",
    "x-utterd-error-message": "the engine failed",
    "x-utterd-attempt": 4,
    "x-utterd-worker-deaths": 1,
    "x-utterd-routing-key": "synthesize.interactive",
    "x-utterd-died-at": NOON.isoformat(),
}


def read(headers, **fields):
    return read_obituary(Message(body=b"", headers=headers, **fields), SETTINGS)


def death(reason="delivery_limit", queue="tts.jobs.interactive", **fields):
    return {"reason": reason, "queue": queue, "count": 1, "time": NOON} | fields


def test_a_daemons_reason_is_read_from_its_headers():
    """Code, message, attempts, lane and instant."""
    obituary = read(BURIED)
    assert (obituary.reason, obituary.explanation) == ("engine_failed", "the engine failed")
    assert (obituary.attempts, obituary.worker_deaths) == (4, 1)
    assert (obituary.lane, obituary.died_at) == (Lane.INTERACTIVE, NOON)


@pytest.mark.parametrize("reason", ["delivery_limit", "expired", "rejected", "maxlen"])
def test_the_brokers_reason_is_explained(reason):
    """Where the broker moved the job out of its lane, it says why."""
    obituary = read({"x-death": [death(reason)]})
    assert (obituary.reason, obituary.died_at) == (reason, NOON)
    assert obituary.lane is Lane.INTERACTIVE
    assert obituary.explanation


def test_an_end_of_a_delay_is_no_death():
    """Each delay leaves a note as well, which is history only."""
    delays = [death("expired", "tts.retry.10s"), death("expired", "tts.retry.60s")]
    obituary = read({"x-death": [delays[0], death("delivery_limit"), delays[1]]})
    assert obituary.reason == "delivery_limit"
    assert [one.queue for one in obituary.deaths] == [
        "tts.retry.10s",
        "tts.jobs.interactive",
        "tts.retry.60s",
    ]
    assert read({"x-death": delays}).reason == "unrouted"


def test_a_daemons_reason_goes_before_the_brokers():
    """The broker's notes are older: they came with the message that was buried."""
    assert read(BURIED | {"x-death": [death("expired")]}).reason == "engine_failed"


def test_without_any_note_the_job_fitted_no_lane():
    """It came here by the alternate exchange, at the time it was published."""
    obituary = read({}, timestamp=NOON, routing_key="synthesize.urgent")
    assert (obituary.reason, obituary.lane, obituary.died_at) == ("unrouted", Lane.BATCH, NOON)
    assert read({}).died_at is None


@pytest.mark.parametrize(
    ("headers", "lane"),
    [
        ({"x-utterd-routing-key": "synthesize.interactive"}, Lane.INTERACTIVE),
        ({"x-utterd-routing-key": "10s", "CC": ["synthesize.interactive"]}, Lane.INTERACTIVE),
        ({"x-utterd-routing-key": "10s", "x-death": [death()]}, Lane.INTERACTIVE),
        ({"x-utterd-routing-key": "synthesize.batch", "x-death": [death()]}, Lane.BATCH),
        ({"x-utterd-routing-key": "10s", "CC": "synthesize.interactive"}, Lane.BATCH),
        ({}, Lane.BATCH),
    ],
)
def test_the_lane_is_found_wherever_it_is_noted(headers, lane):
    """In the daemon's header, in `CC` after a delay, or in the broker's note."""
    assert read(headers).lane is lane


def test_nothing_that_is_shown_moves_the_cursor():
    """A stranger may have written the headers."""
    obituary = read({"x-utterd-error-code": "\x1b[2J", "x-utterd-error-message": "a\nb\x9b"})
    assert (obituary.reason, obituary.explanation) == ("\ufffd[2J", "a\ufffdb\ufffd")
    assert visible("Grüße, 世界") == "Grüße, 世界"


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.datetimes(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_names = st.sampled_from([*BURIED, "x-death", "CC", "reason", "queue", "count", "time", "anything"])


@given(st.dictionaries(_names, _values | st.lists(st.dictionaries(_names, _values))))
def test_no_headers_are_too_strange(headers):
    """Whatever a stranger sends can be read."""
    obituary = read(headers)
    assert obituary.reason.isprintable()
    assert obituary.attempts >= 1
    assert all(isinstance(one, Death) for one in obituary.deaths)
