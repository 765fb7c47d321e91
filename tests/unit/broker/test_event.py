from datetime import UTC, datetime
from uuid import UUID

from utterd.broker.event import Event
from utterd_schemas.events import EventType


def test_headers_are_cloudevents_attributes_and_the_trace():
    """Binary mode: a prefix for the attributes, none for the trace context."""
    event = Event(
        id=UUID(int=1),
        type=EventType.COMPLETED,
        source="/utterd",
        subject="job-1",
        time=datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
        data=b"{}",
        trace={"traceparent": "00-aa-bb-01"},
    )
    assert event.headers() == {
        "cloudEvents_specversion": "1.0",
        "cloudEvents_id": "00000000-0000-0000-0000-000000000001",
        "cloudEvents_source": "/utterd",
        "cloudEvents_type": "io.utterd.synthesis.completed.v1",
        "cloudEvents_subject": "job-1",
        "cloudEvents_time": "2026-01-02T03:04:05.678000Z",
        "traceparent": "00-aa-bb-01",
    }
