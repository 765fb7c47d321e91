"""The job: what a publisher asks for."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    StrictBool,
    StrictInt,
    field_validator,
    model_validator,
)

from utterd_schemas.audio import AudioFormat, MarkKind

SCHEMA_VERSION = 1
"""The version of this contract. A job that names a higher one may carry fields unknown here."""


def _without_lone_surrogates(value: object) -> object:
    """Drop halves of surrogate pairs, which JSON can spell but UTF-8 can't carry."""
    if isinstance(value, str):
        return value.encode("utf-8", "ignore").decode("utf-8")
    return value


_RFC_3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)


def _timestamp(value: object) -> object:
    # pydantic alone would also take seconds since 1970, as a number or as a string of digits.
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        raise ValueError("must be an RFC 3339 timestamp in a string, such as 2030-01-31T12:00:00Z")
    return value


Words = Annotated[str, BeforeValidator(_without_lone_surrogates)]
LabelName = Annotated[str, Field(min_length=1, max_length=64)]
LabelValue = Annotated[str, Field(max_length=256)]


class Job(BaseModel):
    """One request for speech. Fields that are not listed here are refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "oneOf": [
                {"required": [name], "properties": {name: {"type": "string"}}}
                for name in ("text", "ssml")
            ]
        },
    )

    job_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="The publisher's own name for the job, repeated in every event. Default: the "
        "AMQP message_id, else one derived from the message.",
    )
    text: Words | None = Field(default=None, description="What to say, as plain text.")
    ssml: Words | None = Field(
        default=None, description="What to say, as SSML: `speak p s break sub say-as prosody`."
    )
    voice: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="`engine/voice` or an alias, as `utterd voices` lists them. Default: a setting "
        "of the daemon.",
    )
    language: str = Field(
        default="auto",
        pattern=r"^[a-z]{2,4}(-[A-Za-z0-9]{2,8})*$",
        description="BCP 47 tag of the text's language, a hint for the front end; `auto` looks at "
        "the text.",
    )
    speed: float = Field(
        default=1.0,
        strict=True,
        ge=0.5,
        le=2.0,
        allow_inf_nan=False,
        description="Speaking rate; the pitch is kept.",
    )
    format: AudioFormat | None = Field(
        default=None, description="Container and codec. Default: a setting of the daemon."
    )
    sample_rate_hz: StrictInt | None = Field(
        default=None,
        ge=8000,
        le=48000,
        description="Default: the engine's own rate, or the next one that the codec can carry.",
    )
    bitrate_kbps: StrictInt | None = Field(
        default=None, ge=1, le=512, description="For `mp3` and `opus`."
    )
    # FailFast: a million wrong elements are one fault, found at the first.
    marks: Annotated[tuple[MarkKind, ...], FailFast()] = Field(
        default=(),
        max_length=2,
        description="Timing marks to store beside the audio.",
        json_schema_extra={"uniqueItems": True},
    )
    normalize: StrictBool = Field(
        default=True, description="Whether numbers, dates and units are written out before speech."
    )
    seed: StrictInt | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description="Random seed of the synthesis. Default: derived from the request, so that the "
        "same request gives the same samples.",
    )
    stream: StrictBool = Field(
        default=False,
        description="Whether each finished segment gets an object of its own, told in a `progress` "
        "event, so that the beginning can be heard before the end is spoken.",
    )
    expires_at: Annotated[AwareDatetime, BeforeValidator(_timestamp)] | None = Field(
        default=None, description="RFC 3339 instant after which the audio is of no use."
    )
    labels: dict[LabelName, LabelValue] = Field(
        default_factory=dict,
        max_length=16,
        description="The publisher's own notes, repeated in every event.",
    )
    schema_version: StrictInt = Field(
        default=SCHEMA_VERSION,
        alias="schema",
        ge=1,
        description=f"The contract the publisher wrote for. This is version {SCHEMA_VERSION}: in a "
        "job of a higher version, fields that are unknown here are passed over; in all others they "
        "are refused, for they are most likely misspelt.",
    )

    @model_validator(mode="before")
    @classmethod
    def _pass_over_fields_of_a_newer_contract(cls, data: Any) -> Any:  # noqa: ANN401 - raw input
        if not isinstance(data, Mapping):
            return data
        version = data.get("schema")
        if not isinstance(version, int) or version <= SCHEMA_VERSION:
            return data
        return {name: value for name, value in data.items() if name in FIELD_NAMES}

    @field_validator("job_id")
    @classmethod
    def _printable(cls, job_id: str | None) -> str | None:
        if job_id is not None and not job_id.isprintable():
            raise ValueError("must not hold control characters")
        return job_id

    @field_validator("marks")
    @classmethod
    def _each_mark_once(cls, marks: tuple[MarkKind, ...]) -> tuple[MarkKind, ...]:
        if len(set(marks)) != len(marks):
            raise ValueError("must name each kind of mark once")
        return marks

    @model_validator(mode="after")
    def _exactly_one_script(self) -> Self:
        if (self.text is None) == (self.ssml is None):
            raise ValueError("exactly one of `text` and `ssml` must be given")
        return self


FIELD_NAMES = frozenset(field.alias or name for name, field in Job.model_fields.items())
"""The names of a job's fields as they stand in JSON."""
