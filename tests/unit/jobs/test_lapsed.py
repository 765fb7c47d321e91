"""Jobs that the broker gave up end as well."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from utterd.config import BrokerSettings
from utterd.errors import StoreUnavailableError
from utterd.jobs.announce import Announcer
from utterd.jobs.lapsed import LapsedRunner
from utterd.ops.metrics import Metrics
from utterd.store.reporting import ENVIRONMENT_PART as STORE_PART
from utterd.store.reporting import ReportingObjectStore
from utterd.testing.broker import Settlement
from utterd.testing.store import InMemoryObjectStore

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
BODY = b'{"job_id": "j-1", "text": "Hello there.", "labels": {"page": "3"}}'


def lapsed(reason, **headers):
    note = {"reason": reason, "queue": "tts.jobs.batch", "count": 1, "time": NOW}
    return {"x-death": [note]} | headers


def runner_of(line, **replaced):
    parts = {
        "settings": BrokerSettings(),
        "planner": line.runner.planner,
        "objects": ReportingObjectStore(line.objects, line.environment),
        "sink": line.broker,
        "announcer": Announcer(sink=line.broker, source="/test", now=lambda: NOW),
        "now": lambda: NOW,
        "monotonic": time.monotonic,
        "max_message_bytes": 1000,
        "metrics": Metrics(),
    }
    return LapsedRunner(**(parts | replaced))


async def end(line, body, headers, **properties):
    """Have a lapsed job told of; returns its settlement."""
    runner = runner_of(line, **properties.pop("parts", {}))
    delivery = line.deliver(body, headers=headers, **properties)
    await runner.run(delivery)
    return delivery.settlement


def told(line) -> list[dict]:
    return [json.loads(event.data) for event in line.broker.events]


async def test_a_job_that_waited_too_long_has_expired(open_line):
    """An event with its labels and the instant, an ack, and no copy among the dead."""
    async with open_line() as line:
        assert await end(line, BODY, lapsed("expired")) is Settlement.ACKED
        assert line.outcomes == ["expired"]
        (data,) = told(line)
        assert data["labels"] == {"page": "3"}
        assert datetime.fromisoformat(data["expires_at"]) == NOW
        assert line.broker.dead == []


@pytest.mark.parametrize("ahead", [-60, 60])
async def test_the_earliest_instant_counts(open_line, ahead):
    """A job can have an instant of its own, before or after the broker's."""
    own = NOW + timedelta(seconds=ahead)
    body = json.dumps({"job_id": "j-1", "text": "Hello.", "expires_at": own.isoformat()}).encode()
    async with open_line() as line:
        await end(line, body, lapsed("expired"))
        assert datetime.fromisoformat(told(line)[0]["expires_at"]) == min(NOW, own)


async def test_a_job_that_was_delivered_too_often_has_failed(open_line):
    """An event with a code of its own, and a copy with the reason and the lane's key."""
    async with open_line() as line:
        assert await end(line, BODY, lapsed("delivery_limit")) is Settlement.ACKED
        assert line.outcomes == ["failed"]
        (dead,) = line.broker.dead
        assert told(line)[0]["error"]["code"] == dead.error.code == "delivery_limit"
        assert dead.message.routing_key == "synthesize.batch"


@pytest.mark.parametrize("reason", ["rejected", "maxlen", ""])
async def test_any_other_reason_is_a_fault_of_our_own(open_line, reason):
    """A daemon rejects only what met a bug."""
    async with open_line() as line:
        await end(line, BODY, lapsed(reason))
        assert told(line)[0]["error"]["code"] == "internal_error"


@pytest.mark.parametrize("reason", ["delivery_limit", "expired", "rejected"])
async def test_a_finished_job_stays_completed(open_line, reason):
    """Its event is repeated with the same id, for its acknowledgement may have been lost."""
    async with open_line() as line:
        await line.run(BODY)
        completed = line.broker.events[-1]
        await end(line, BODY, lapsed(reason))
        again = line.broker.events[-1]
        assert (again.id, again.type) == (completed.id, completed.type)
        assert told(line)[-1]["sha256"] == told(line)[-2]["sha256"]
        assert line.broker.dead == []


async def test_audio_of_another_job_does_not_undo_an_expiry(open_line):
    """A job that no daemon ever saw can't have been completed."""
    async with open_line() as line:
        await line.run(BODY.replace(b"j-1", b"j-2"))
        await end(line, BODY, lapsed("expired"))
        assert line.outcomes[-1] == "expired"


async def test_audio_of_another_job_completes_one_that_was_seen(open_line):
    """What was delivered too often finds the audio that any daemon would have found."""
    async with open_line() as line:
        await line.run(BODY.replace(b"j-1", b"j-2"))
        await end(line, BODY, lapsed("delivery_limit"))
        assert line.outcomes[-1] == "completed"
        assert told(line)[-1]["cached"] is True


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b'{"text": "..."}', "empty_text"),
        (b'{"text": "x", "format": "mp4"}', "invalid_field"),
        (b"\xff" * 1001, "message_too_large"),
    ],
)
async def test_a_job_that_can_not_be_done_fails_as_in_its_lane(open_line, body, code):
    """The same event with the same id, whoever tells of it."""
    async with open_line(max_message_bytes=1000) as line:
        await line.run(body, message_id="j-1")
        await end(line, body, lapsed("delivery_limit"), message_id="j-1")
        assert [data["error"]["code"] for data in told(line)] == [code, code]
        assert len({event.id for event in line.broker.events}) == 1


async def test_an_expired_job_is_not_planned(open_line):
    """A daemon asks for the time first, and so does whoever tells of the job later."""
    async with open_line() as line:
        await end(line, b'{"job_id": "j-1", "text": "..."}', lapsed("expired"))
        assert line.outcomes == ["expired"]


async def test_what_nobody_can_be_told_of_is_buried(open_line):
    """Without any id there is no event; the copy among the dead has the reason."""
    async with open_line() as line:
        assert await end(line, b"\x00", lapsed("expired")) is Settlement.ACKED
        assert line.outcomes == []
        assert line.broker.dead[0].error.code == "invalid_json"


@pytest.mark.parametrize(
    ("reason", "outcome"), [("delivery_limit", "failed"), ("expired", "expired")]
)
async def test_a_suspect_body_is_left_alone(open_line, reason, outcome):
    """Its properties tell the id, and the line ends without a look inside."""
    async with open_line() as line:
        headers = lapsed(reason, **{"x-delivery-count": 5})
        parts = {"planner": None}
        await end(line, b"deadly", headers, message_id="j-1", redelivered=True, parts=parts)
        assert line.outcomes == [outcome]
        assert told(line)[0]["job_id"] == "j-1"


async def test_a_forged_count_of_deliveries_changes_no_id(open_line):
    """A job that nobody returned is told of by its own id, not by that of its message."""
    async with open_line() as line:
        headers = lapsed("expired", **{"x-delivery-count": 10})
        await end(line, BODY, headers, message_id="another")
        assert [data["job_id"] for data in told(line)] == ["j-1"]


async def test_a_bug_in_the_look_inside_costs_no_event(open_line):
    """What is known without it is told."""
    async with open_line() as line:
        await end(line, BODY, lapsed("expired"), message_id="another", parts={"planner": None})
        assert line.outcomes == ["expired"]
        assert told(line)[0]["job_id"] == "j-1"


class BrokenStore(InMemoryObjectStore):
    """A store that can't be asked."""

    async def head(self, name):
        raise StoreUnavailableError(f"{name} can't be found: mend the store")


async def test_a_broken_store_delays_the_verdict(open_line):
    """Whether the job was finished is not known: it is given back, and the daemon pauses."""
    async with open_line(objects=BrokenStore()) as line:
        assert await end(line, BODY, lapsed("delivery_limit")) is Settlement.RELEASED
        assert STORE_PART in line.environment.faults
        assert line.outcomes == []


async def test_nothing_is_acked_before_the_confirms(open_line):
    """Neither the event nor the copy may be lost."""
    async with open_line() as line:
        line.broker.hold_confirms()
        delivery = line.deliver(BODY, headers=lapsed("delivery_limit"))
        running = asyncio.ensure_future(runner_of(line).run(delivery))
        await line.broker.unconfirmed()
        assert delivery.settlement is None
        line.broker.confirm()
        await running
        assert delivery.settlement is Settlement.ACKED
