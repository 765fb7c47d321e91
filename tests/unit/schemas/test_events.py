"""The events and their ids."""

from itertools import product
from uuid import UUID

import pytest
from pydantic import ValidationError

from utterd_schemas import ErrorCode, ErrorInfo, EventType, FailedData, StartedData, event_id
from utterd_schemas.events import EVENT_DATA, EventData, Timings


def test_an_event_id_never_changes():
    """Subscribers tell repeated events by their id, so it must outlive releases."""
    assert event_id("job-1", EventType.COMPLETED) == UUID("1a9bb72f-7e6c-5650-bc2a-66be0317b53f")


def test_event_ids_tell_job_type_and_sequence_apart():
    """No two events share an id, also when job ids look like parts of each other."""
    jobs = ("1", "11", "1\n" + EventType.FAILED, "")
    ids = {event_id(*event) for event in product(jobs, EventType, range(3))}
    assert len(ids) == len(jobs) * len(EventType) * 3


def test_every_type_has_data_and_a_routing_key_of_its_own():
    """Types, data classes and routing keys correspond one to one."""
    assert [data.type for data in EVENT_DATA] == list(EventType)
    assert {event.routing_key for event in EventType} == {
        "synthesis.started",
        "synthesis.progress",
        "synthesis.completed",
        "synthesis.failed",
        "synthesis.cancelled",
        "synthesis.expired",
    }


def test_a_job_ends_with_one_of_four_events():
    """Only `started` and `progress` leave more to be said."""
    terminal = {event.outcome for event in EventType if event.is_terminal}
    assert terminal == {"completed", "failed", "cancelled", "expired"}


@pytest.mark.parametrize("data", EVENT_DATA)
def test_every_field_is_described_or_speaks_for_itself(data: type[EventData]):
    """A subscriber reads what a number means in the schema."""
    silent = {
        name
        for name, field in data.model_fields.items()
        if field.description is None and field.annotation in (int, float)
    }
    assert silent <= {"sample_rate_hz", "channels", "attempts"}


def test_data_round_trips_through_json():
    """What a subscriber parses equals what was sent."""
    failed = FailedData(
        job_id="7",
        labels={"order": "7"},
        error=ErrorInfo(
            code=ErrorCode.UNKNOWN_VOICE,
            message="no such voice",
            retryable=False,
            detail={"voices": ["hibari/heart"]},
        ),
        attempts=1,
    )
    assert FailedData.model_validate_json(failed.model_dump_json()) == failed


def test_data_refuses_what_is_not_in_the_contract():
    """A misspelt field of the daemon's own is found where the event is made."""
    with pytest.raises(ValidationError):
        StartedData.model_validate(
            {"job_id": "7", "key": "k", "voice": "v", "segments": 1, "attempt": 1, "attempts": 1}
        )


def test_no_time_is_negative():
    """A clock that was set back must not reach the event."""
    with pytest.raises(ValidationError):
        Timings(queue_s=-0.1)
