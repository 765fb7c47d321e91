from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.broker.message import ATTEMPT_HEADER, Message

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "attempt"),
    [(2, 2), (64, 64), (1, 1), (0, 1), (-5, 1), (True, 1), ("3", 1), (3.0, 1), (None, 1), ([2], 1)],
)
def test_only_a_number_counts_as_an_attempt(value, attempt):
    """The header is a stranger's until proven ours."""
    assert Message(body=b"", headers={ATTEMPT_HEADER: value}).attempt == attempt


def test_the_first_delivery_is_attempt_one():
    """Without the header, nobody has tried before."""
    assert Message(body=b"").attempt == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "a"), (b"a", "a"), (b"\xff", "�"), (1, None), (None, None), ({}, None)],
)
def test_a_text_header_is_text_or_nothing(value, text):
    """Some clients send text as bytes; whatever is no text is not there."""
    assert Message(body=b"", headers={"name": value}).text_header("name") == text


def test_the_expiration_counts_from_the_timestamp():
    """Only both together tell when a job's time is over."""
    message = Message(body=b"", expiration_s=1.5, timestamp=NOW)
    assert message.expires_at == NOW + timedelta(seconds=1.5)
    assert Message(body=b"", expiration_s=1.5).expires_at is None
    assert Message(body=b"", timestamp=NOW).expires_at is None


@given(
    expiration_s=st.floats(0, 2**32 / 1000),
    timestamp=st.datetimes(timezones=st.just(UTC)),
)
def test_no_expiration_is_beyond_us(expiration_s, timestamp):
    """Whatever RabbitMQ lets pass is an instant, or never."""
    message = Message(body=b"", expiration_s=expiration_s, timestamp=timestamp)
    assert message.expires_at is None or message.expires_at >= timestamp


def test_the_age_is_never_negative():
    """Clocks differ; a message from the future is new."""
    assert Message(body=b"", timestamp=NOW).age_s(NOW + timedelta(seconds=2)) == 2
    assert Message(body=b"", timestamp=NOW).age_s(NOW - timedelta(seconds=2)) == 0
    assert Message(body=b"").age_s(NOW) is None
