"""The events: what the daemon tells about a job.

Each is a CloudEvent 1.0 in AMQP binary mode: the attributes travel as headers with the
prefix `cloudEvents_`, the message body is the data alone.
"""

from enum import StrEnum
from typing import ClassVar, Literal
from uuid import UUID, uuid5

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from utterd_schemas.audio import AudioFormat
from utterd_schemas.errors import ErrorInfo

SPEC_VERSION = "1.0"
HEADER_PREFIX = "cloudEvents_"
CONTENT_TYPE = "application/json"

_NAMESPACE = UUID("6f0b9c3e-7c0f-5f3a-9d1e-3d6b8d1f4a52")


class EventType(StrEnum):
    """The CloudEvents `type` of each event."""

    STARTED = "io.utterd.synthesis.started.v1"
    PROGRESS = "io.utterd.synthesis.progress.v1"
    COMPLETED = "io.utterd.synthesis.completed.v1"
    FAILED = "io.utterd.synthesis.failed.v1"
    CANCELLED = "io.utterd.synthesis.cancelled.v1"
    EXPIRED = "io.utterd.synthesis.expired.v1"

    @property
    def outcome(self) -> str:
        """The one word that tells the types apart, such as `completed`."""
        return self.split(".")[3]

    @property
    def routing_key(self) -> str:
        return f"synthesis.{self.outcome}"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing more is said about the job after this event."""
        return self not in (EventType.STARTED, EventType.PROGRESS)


def event_id(job_id: str, event_type: EventType, sequence: int = 0) -> UUID:
    """The same event of the same job has the same id, however often it is sent."""
    return uuid5(_NAMESPACE, f"{job_id}\n{event_type}\n{sequence}")


class EventData(BaseModel):
    """What every event says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: ClassVar[EventType]

    job_id: str = Field(description="The job that this is about; also the CloudEvents subject.")
    labels: dict[str, str] = Field(default_factory=dict, description="The job's labels.")


class StartedData(EventData):
    """Synthesis has begun. Not sent for a job whose audio stood in the bucket already."""

    type = EventType.STARTED

    key: str = Field(description="The request's hash, which names the object.")
    voice: str = Field(description="The voice that speaks, as `engine/voice`.")
    segments: int = Field(ge=1, description="Into how many pieces the text was cut.")
    attempt: int = Field(ge=1, description="1 at the first delivery.")


class Quality(BaseModel):
    """What the gates before the store made of the audio."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verdict: Literal["ok", "suspect"] = Field(
        description="`suspect`: a gate failed, also when spoken again with another seed."
    )
    reasons: tuple[str, ...] = Field(default=(), description="Which gates failed.")


class SegmentAudio(BaseModel):
    """Where one segment's audio is, while others are still being spoken."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int = Field(ge=1, description="Its place in the text; they may come in any order.")
    object_name: str = Field(description="The object's name in the bucket.")
    url: str = Field(description="The object's location, `s3://bucket/name` or `file:///path`.")
    presigned_url: str | None = Field(
        default=None, description="A link that works without credentials, where settings allow it."
    )
    content_type: str
    format: AudioFormat
    sample_rate_hz: int = Field(gt=0)
    duration_s: float = Field(gt=0, description="With the pause after it.")
    frames: int = Field(gt=0, description="Samples of the decoded file.")
    bytes: int = Field(gt=0, description="The object's size.")
    sha256: str = Field(description="Of the object's bytes.")
    quality: Quality


class ProgressData(EventData):
    """Part of the text has been spoken."""

    type = EventType.PROGRESS

    key: str = Field(description="The request's hash, which names the object.")
    segments: int = Field(ge=1, description="Into how many pieces the text was cut.")
    segments_done: int = Field(ge=1, description="How many of them are spoken.")
    segment: SegmentAudio | None = Field(
        default=None,
        description="The segment that is spoken now, for a job with `stream`; null when it holds "
        "nothing that can be heard, or could not be stored.",
    )


class Timings(BaseModel):
    """Where the time went, in seconds. A step that the job skipped took 0."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    queue_s: float | None = Field(
        default=None,
        ge=0,
        description="From the message's timestamp to its delivery; null without a timestamp.",
    )
    plan_s: float = Field(default=0.0, ge=0)
    lookup_s: float = Field(default=0.0, ge=0)
    speak_s: float = Field(default=0.0, ge=0)
    encode_s: float = Field(default=0.0, ge=0)
    store_s: float = Field(default=0.0, ge=0)
    total_s: float = Field(default=0.0, ge=0, description="From delivery to this event.")


class Marks(BaseModel):
    """Where the timing marks are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(description="The name of the JSON object with the marks.")
    url: str = Field(description="Its location.")


class CompletedData(EventData):
    """The audio is in the bucket."""

    type = EventType.COMPLETED

    key: str = Field(description="The request's hash, which names the object.")
    bucket: str = Field(description="The bucket, or the directory of a filesystem store.")
    object_name: str = Field(description="The object's name in the bucket.")
    url: str = Field(description="The object's location, `s3://bucket/name` or `file:///path`.")
    presigned_url: str | None = Field(
        default=None, description="A link that works without credentials, where settings allow it."
    )
    content_type: str
    format: AudioFormat
    sample_rate_hz: int = Field(gt=0)
    channels: int = Field(ge=1)
    duration_s: float = Field(gt=0, description="Of the decoded file.")
    frames: int = Field(gt=0, description="Samples in each channel of the decoded file.")
    bytes: int = Field(gt=0, description="The object's size.")
    sha256: str = Field(description="Of the object's bytes.")
    cached: bool = Field(description="Whether the audio had been made for an earlier job.")
    engine: str
    voice: str = Field(description="The voice that spoke, as `engine/voice`.")
    bundle: str = Field(description="Digest of the model that spoke.")
    language: str
    attempts: int = Field(ge=1, description="1 when the first delivery succeeded.")
    quality: Quality
    marks: Marks | None = Field(default=None, description="Null when the job asked for none.")
    timings: Timings
    real_time_factor: float | None = Field(
        default=None,
        description="Seconds of synthesis per second of audio; null when nothing was synthesised.",
    )


class FailedData(EventData):
    """The job ended without audio."""

    type = EventType.FAILED

    error: ErrorInfo
    attempts: int = Field(ge=1)


class CancelledData(EventData):
    """Somebody called the job off."""

    type = EventType.CANCELLED

    attempts: int = Field(ge=1)


class ExpiredData(EventData):
    """The job's time was over before its audio was ready."""

    type = EventType.EXPIRED

    expires_at: AwareDatetime
    attempts: int = Field(ge=1)


EVENT_DATA: tuple[type[EventData], ...] = (
    StartedData,
    ProgressData,
    CompletedData,
    FailedData,
    CancelledData,
    ExpiredData,
)
