"""The closed list of reasons why a job can fail."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class ErrorCode(StrEnum):
    """Stable names: a code is never renamed, and never reused for something else."""

    MESSAGE_TOO_LARGE = "message_too_large"
    INVALID_ENCODING = "invalid_encoding"
    INVALID_JSON = "invalid_json"
    INVALID_ENVELOPE = "invalid_envelope"
    INVALID_FIELD = "invalid_field"
    UNKNOWN_FIELD = "unknown_field"

    EMPTY_TEXT = "empty_text"
    TEXT_TOO_LONG = "text_too_long"
    INVALID_SSML = "invalid_ssml"
    UNKNOWN_VOICE = "unknown_voice"
    UNSUPPORTED_LANGUAGE = "unsupported_language"
    UNSUPPORTED_OUTPUT = "unsupported_output"
    UNSUPPORTED_MARKS = "unsupported_marks"

    ENGINE_FAILED = "engine_failed"
    INVALID_AUDIO = "invalid_audio"
    WORKER_DIED = "worker_died"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    DELIVERY_LIMIT = "delivery_limit"

    STORE_UNAVAILABLE = "store_unavailable"
    BROKER_UNAVAILABLE = "broker_unavailable"

    INTERNAL_ERROR = "internal_error"


class ErrorInfo(BaseModel):
    """What a `failed` event says about the fault."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: ErrorCode = Field(description="Why the job failed; the list is closed.")
    message: str = Field(description="A sentence for a person: what is wrong and what to do next.")
    retryable: bool = Field(description="Whether the same job can succeed when sent again.")
    detail: dict[str, JsonValue] = Field(
        default_factory=dict, description="Facts for a program, such as the values that are legal."
    )
