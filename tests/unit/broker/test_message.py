from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.broker.message import (
    ATTEMPT_HEADER,
    EXPIRES_AT_HEADER,
    FIRST_ATTEMPT,
    MAX_COUNT,
    WORKER_DEATHS_HEADER,
    Message,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "attempt"),
    [
        (2, 2),
        (64, 64),
        (2**63 - 1, MAX_COUNT),
        (1, 1),
        (0, 1),
        (-5, 1),
        (True, 1),
        ("3", 1),
        (3.0, 1),
        (None, 1),
        ([2], 1),
    ],
)
def test_only_a_number_counts_as_an_attempt(value, attempt):
    """The header is a stranger's until proven ours."""
    assert Message(body=b"", headers={ATTEMPT_HEADER: value}).history.attempt == attempt


def test_the_first_delivery_is_attempt_one():
    """Without the headers, nobody has tried before and nothing has died."""
    assert Message(body=b"").history == FIRST_ATTEMPT


@pytest.mark.parametrize(
    ("value", "deaths"),
    [(1, 1), (2**63, MAX_COUNT), (0, 0), (-1, 0), (True, 0), ("1", 0)],
)
def test_only_a_number_counts_as_dead_workers(value, deaths):
    """Nobody can condemn a job by a strange header, and nobody can make it immortal."""
    assert Message(body=b"", headers={WORKER_DEATHS_HEADER: value}).history.worker_deaths == deaths


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


@pytest.mark.parametrize(
    ("written", "expires_at"),
    [
        (NOW.isoformat(), NOW),
        (NOW.isoformat().encode(), NOW),
        (NOW.replace(tzinfo=None).isoformat(), None),
        ("soon", None),
    ],
)
def test_a_job_that_waited_carries_its_expiry_in_a_header(written, expires_at):
    """It goes before the property; an instant without a zone, or none at all, is no expiry."""
    message = Message(
        body=b"", headers={EXPIRES_AT_HEADER: written}, expiration_s=60, timestamp=NOW
    )
    assert message.expires_at == expires_at


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
