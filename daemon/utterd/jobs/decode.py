"""From a delivery to an order. Nothing here trusts a byte, and nothing repeats one in a log."""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from uuid import UUID, uuid5

from pydantic import JsonValue, ValidationError

from utterd.broker.message import Arrival, Message
from utterd.errors import (
    InvalidEncodingError,
    InvalidEnvelopeError,
    InvalidJsonError,
    MessageTooLargeError,
    PermanentError,
)
from utterd.jobs.order import Order, Sender
from utterd.jobs.validate import validate_job
from utterd_schemas.events import HEADER_PREFIX, SPEC_VERSION
from utterd_schemas.job import Job

CLOUDEVENT_CONTENT_TYPE = "application/cloudevents+json"
MAX_JOB_ID_CHARS = 128
MAX_JSON_DEPTH = 16
"""A job in a CloudEvent has three levels; the rest is room for fields of a newer contract."""

_ANONYMOUS = UUID("0b6c3f60-2f6e-5d0f-8d0c-5b8ee0e4a1f7")
# Other producers write the prefix of the AMQP 1.0 binding instead.
_ATTRIBUTE_PREFIXES = (HEADER_PREFIX, "cloudEvents:")


class UndecodableError(Exception):
    """The delivery holds no job that can be worked on.

    Attributes:
        error: why not.
        sender: whom to tell, as far as the message says.
    """

    def __init__(self, error: PermanentError, sender: Sender) -> None:
        super().__init__(error.code)
        self.error = error
        self.sender = sender


def decode(arrival: Arrival, *, max_bytes: int, now: datetime) -> Order:
    """Read a job from a message: JSON or a CloudEvent (binary or structured), gzipped or not.

    Args:
        arrival: from the broker.
        max_bytes: the largest body, also after decompression.
        now: the current instant, with a zone.

    Raises:
        UndecodableError: the body is too large, broken, or not a job.
    """
    message = arrival.message
    job_id = _readable_id(message.message_id)
    labels: Mapping[str, str] = {}
    try:
        envelope = _open(message, _parse(_plain_body(message, max_bytes)))
        # Read before anything is refused, so that the refusal reaches whom it concerns.
        job_id = _readable_id(envelope.member("job_id")) or _readable_id(envelope.subject) or job_id
        labels = _readable_labels(envelope.member("labels"))
        if envelope.fault is not None:
            raise envelope.fault
        job = validate_job(envelope.data)
    except PermanentError as error:
        raise UndecodableError(error, Sender.of(message, job_id=job_id, labels=labels)) from None
    job_id = job_id or _anonymous_id(message)
    expiries = [instant for instant in (job.expires_at, message.expires_at) if instant]
    return Order(
        job=job,
        job_id=job_id,
        sender=Sender.of(message, job_id=job_id, labels=job.labels),
        lane=arrival.lane,
        expires_at=min(expiries, default=None),
        published_at=message.timestamp,
        queue_s=message.age_s(now),
    )


def sender_of(message: Message) -> Sender:
    """Whom to tell about a message whose body must not be touched."""
    return Sender.of(message, job_id=_readable_id(message.message_id))


def _plain_body(message: Message, max_bytes: int) -> bytes:
    if len(message.body) > max_bytes:
        raise MessageTooLargeError(
            f"the message has {len(message.body)} bytes, the limit is {max_bytes}: send less text"
            " in one job",
            max_bytes=max_bytes,
        )
    match (message.content_encoding or "identity").strip().lower():
        case "identity" | "utf-8" | "utf8":
            return message.body
        case "gzip":
            return _gunzip(message.body, max_bytes)
        case _:
            raise InvalidEncodingError("unknown content_encoding: send gzip, or leave it out")


def _gunzip(body: bytes, max_bytes: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=BytesIO(body)) as file:
            # No more is unpacked than what tells a bomb from a job.
            plain = file.read(max_bytes + 1)
    except (EOFError, OSError, zlib.error):
        raise InvalidEncodingError(
            "content_encoding says gzip, but the body is not one whole gzip file: compress it"
            " again, or leave the property out"
        ) from None
    if len(plain) > max_bytes:
        raise MessageTooLargeError(
            f"the decompressed message is over the limit of {max_bytes} bytes: send less text in"
            " one job",
            max_bytes=max_bytes,
        )
    return plain


@dataclass(frozen=True, slots=True)
class _Envelope:
    """What a body is wrapped in: nothing, CloudEvents headers, or a CloudEvent in JSON."""

    data: JsonValue
    subject: object = None
    fault: InvalidEnvelopeError | None = None

    def member(self, name: str) -> object:
        return self.data.get(name) if isinstance(self.data, dict) else None


def _open(message: Message, document: JsonValue) -> _Envelope:
    content_type = (message.content_type or "").split(";")[0].strip().lower()
    if content_type == CLOUDEVENT_CONTENT_TYPE:
        return _open_structured(document)
    for prefix in _ATTRIBUTE_PREFIXES:
        if (version := message.text_header(f"{prefix}specversion")) is not None:
            subject = message.text_header(f"{prefix}subject")
            return _Envelope(document, subject, _version_fault(version))
    return _Envelope(document)


def _open_structured(document: JsonValue) -> _Envelope:
    if not isinstance(document, dict):
        fault = InvalidEnvelopeError("a structured CloudEvent is a JSON object: send one")
        return _Envelope(document, fault=fault)
    missing = (
        None
        if "data" in document
        else InvalidEnvelopeError("the CloudEvent has no `data`: put the job there, as JSON")
    )
    return _Envelope(
        document.get("data"),
        document.get("subject"),
        _version_fault(document.get("specversion")) or missing,
    )


def _version_fault(version: object) -> InvalidEnvelopeError | None:
    if version == SPEC_VERSION:
        return None
    return InvalidEnvelopeError(f"the CloudEvent must have specversion {SPEC_VERSION}")


def _parse(body: bytes) -> JsonValue:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidEncodingError("the body is not UTF-8: send JSON in UTF-8") from None
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise _nested_too_deeply() from None
    except ValueError:
        # The parser's own message quotes nothing, but tells positions in a stranger's text.
        raise InvalidJsonError("the body is not valid JSON: send one JSON object") from None
    # How deep the parser itself goes depends on the version of Python.
    if _is_deeper_than(MAX_JSON_DEPTH, value):
        raise _nested_too_deeply()
    return value


def _nested_too_deeply() -> InvalidJsonError:
    return InvalidJsonError("the JSON is nested too deeply: a job is a flat object")


def _is_deeper_than(limit: int, value: JsonValue) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for container in level
            if isinstance(container, dict | list)
            for child in (container.values() if isinstance(container, dict) else container)
        ]
    return any(isinstance(value, dict | list) for value in level)


def _refuse_constant(_name: str) -> None:
    raise ValueError


def _readable_id(value: object) -> str | None:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_JOB_ID_CHARS:
        return None
    return value if value.isprintable() else None


def _readable_labels(value: object) -> Mapping[str, str]:
    try:
        return Job.model_validate({"text": "", "labels": value}).labels
    except (ValidationError, RecursionError):
        return {}


def _anonymous_id(message: Message) -> str:
    """The same for every delivery of the same message, so that its events keep their ids."""
    parts = (message.correlation_id, message.reply_to, message.timestamp, message.body.hex())
    return str(uuid5(_ANONYMOUS, "\n".join(map(str, parts))))
