"""What is printed about a dead job."""

import json
from datetime import UTC, datetime

import aio_pika
import pytest
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from utterd.broker.dead import DeadJob
from utterd.broker.deaths import Death
from utterd.broker.obituary import Obituary
from utterd.cli.dead_output import described, listed, summary
from utterd.config import Lane

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
SECRET_TEXT = "what nobody else may read"


@pytest.fixture
def dead_job():
    """Makes a dead job as it comes from the broker."""

    def make(body=None, headers=None, job_id="j-1", died_at=NOON):
        raw = json.dumps({"text": SECRET_TEXT}).encode() if body is None else body
        properties = Basic.Properties(headers=headers or {}, timestamp=NOON)
        incoming = aio_pika.IncomingMessage(
            DeliveredMessage(
                delivery=Basic.GetOk(routing_key="dead"),
                header=ContentHeader(properties=properties, body_size=len(raw)),
                body=raw,
                channel=None,
            )
        )
        obituary = Obituary(
            reason="engine_failed",
            explanation="the engine failed",
            lane=Lane.BATCH,
            attempts=4,
            worker_deaths=1,
            died_at=died_at,
            deaths=(Death("expired", "tts.retry.10s", 1, NOON),),
        )
        return DeadJob(job_id, obituary, incoming)

    return make


def test_a_list_holds_no_text(dead_job):
    """Who, why, when and how large: enough to choose."""
    row = listed(dead_job())
    assert row == {
        "job": "j-1",
        "reason": "engine_failed",
        "lane": "batch",
        "attempts": 4,
        "died_at": "2026-01-01T12:00:00+00:00",
        "bytes": len(json.dumps({"text": SECRET_TEXT})),
    }
    assert SECRET_TEXT not in summary(dead_job())


def test_what_nobody_knows_is_called_unknown(dead_job):
    """A message without an id, or without a time of death, is a row all the same."""
    row = listed(dead_job(job_id=None, died_at=None))
    assert (row["job"], row["died_at"]) == ("unknown", "unknown")


def test_a_description_holds_the_text_on_request_only(dead_job):
    """Explanation, history and headers always."""
    facts = described(dead_job(), with_body=False)
    assert SECRET_TEXT not in str(facts)
    assert facts["explanation"] == "the engine failed"
    assert facts["history"] == [
        {
            "reason": "expired",
            "queue": "tts.retry.10s",
            "count": 1,
            "at": "2026-01-01T12:00:00+00:00",
            "expiration_s": None,
        }
    ]
    assert SECRET_TEXT in str(described(dead_job(), with_body=True)["body"])


def test_a_body_that_is_no_text_is_base64(dead_job):
    """Such as one that was compressed."""
    assert described(dead_job(b"\x1f\x8b"), with_body=True)["body_base64"] == "H4s="


def test_headers_are_shown_without_what_moves_the_cursor(dead_job):
    """At any depth, in names and in values, and whatever their type."""
    headers = {"a\x1b": "b\x1b[2J", "at": NOON, "deep": [{"c": b"\x00"}], "count": 1, "none": None}
    facts = described(dead_job(headers=headers), with_body=False)
    assert facts["headers"] == {
        "a\ufffd": "b\ufffd[2J",
        "at": "2026-01-01 12:00:00+00:00",
        "deep": [{"c": "b'\\x00'"}],
        "count": 1,
        "none": None,
    }
    json.dumps(facts)
