"""What the broker gave up, read from its headers."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.broker.lapse import MAX_LOOKS_INSIDE, read_lapse
from utterd.broker.message import Message
from utterd.config import BrokerSettings, Lane

SETTINGS = BrokerSettings()
NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def death(reason="expired", queue="tts.jobs.interactive", **fields):
    return {"reason": reason, "queue": queue, "count": 1, "time": NOON} | fields


def read(headers, **fields):
    return read_lapse(Message(body=b"", routing_key="lapsed", headers=headers, **fields), SETTINGS)


@pytest.mark.parametrize("lane", list(Lane))
def test_the_message_is_as_it_lay_in_its_lane(lane):
    """Lane and routing key are known again, and the expiration that the broker took off."""
    note = death(queue=f"tts.jobs.{lane}") | {"original-expiration": "1500"}
    lapse = read({"x-death": [note]}, timestamp=NOON)
    assert (lapse.lane, lapse.reason, lapse.at) == (lane, "expired", NOON)
    assert lapse.message.routing_key == f"synthesize.{lane}"
    assert lapse.message.expires_at == NOON + timedelta(seconds=1.5)


def test_the_last_death_in_a_lane_counts():
    """Delays leave notes as well, and so does an earlier life."""
    notes = [death(queue="tts.retry.10s"), death("delivery_limit"), death("rejected")]
    assert read({"x-death": notes}).reason == "delivery_limit"


@pytest.mark.parametrize("expiration", [None, 5, "", "-1", "1e3", "9" * 13, "٣"])
def test_an_odd_expiration_is_none(expiration):
    """A stranger may have written the note."""
    lapse = read({"x-death": [death() | {"original-expiration": expiration}]}, timestamp=NOON)
    assert lapse.message.expires_at is None


@pytest.mark.parametrize(
    ("count", "redelivered", "is_suspect"),
    [
        (0, True, False),
        (MAX_LOOKS_INSIDE - 1, True, False),
        (MAX_LOOKS_INSIDE, True, True),
        (SETTINGS.limits.delivery_limit, True, True),
        # Before the first return, it is the lane's count on RabbitMQ 4, or a stranger's word.
        (MAX_LOOKS_INSIDE, False, False),
        (SETTINGS.limits.delivery_limit + 1, False, False),
    ],
)
def test_a_body_that_came_back_often_is_suspect(count, redelivered, is_suspect):
    """What kills whoever reads it is to be told of from its properties."""
    headers = {"x-death": [death("delivery_limit")], "x-delivery-count": count}
    assert read(headers, redelivered=redelivered).is_suspect is is_suspect


@given(
    headers=st.dictionaries(
        st.sampled_from(["x-death", "x-delivery-count", "x-utterd-attempt"]),
        st.recursive(
            st.none() | st.integers() | st.text() | st.binary(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ),
    )
)
def test_reads_whatever_a_stranger_wrote(headers):
    """No header is an error, and every lapse has a lane."""
    assert read(headers).lane in Lane
