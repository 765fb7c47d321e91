"""The contract of utterd: what a job is, what its events say, how its key is made."""

from utterd_schemas.audio import AudioFormat, MarkKind
from utterd_schemas.errors import ErrorCode, ErrorInfo
from utterd_schemas.events import (
    CancelledData,
    CompletedData,
    EventData,
    EventType,
    ExpiredData,
    FailedData,
    ProgressData,
    StartedData,
    event_id,
)
from utterd_schemas.job import Job

__all__ = [
    "AudioFormat",
    "CancelledData",
    "CompletedData",
    "ErrorCode",
    "ErrorInfo",
    "EventData",
    "EventType",
    "ExpiredData",
    "FailedData",
    "Job",
    "MarkKind",
    "ProgressData",
    "StartedData",
    "event_id",
]
