"""Copies of a job's message: what of a stranger's message utterd sends on. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime

from aio_pika import DeliveryMode
from aio_pika import Message as AmqpMessage
from pamqp import frame
from pamqp.common import FieldTable
from pamqp.header import ContentHeader

from utterd.broker.deaths import kept_deaths
from utterd.broker.foreign_headers import OWN_PREFIX, publishers_headers, sendable
from utterd.broker.message import (
    ATTEMPT_HEADER,
    EXPIRES_AT_HEADER,
    WORKER_DEATHS_HEADER,
    History,
    Message,
    bounded,
)
from utterd.broker.topology import routing_key
from utterd.config import Lane
from utterd.errors import JobError, WorkerDiedError

_MAX_REASON_CHARS = 1000
_LANE_KEYS = frozenset(routing_key(lane) for lane in Lane)


def obituaries(
    message: Message, error: JobError, max_frame_bytes: int, *, died_at: datetime
) -> Sequence[AmqpMessage]:
    """A dead job with its reason: whole, without the publisher's headers, and its body alone.

    The later ones are for a broker that refuses the one before; those that fit into no frame are
    left out.
    """
    history = message.history
    reason: FieldTable = {
        OWN_PREFIX + "error-code": str(error.code),
        OWN_PREFIX + "error-message": error.message[:_MAX_REASON_CHARS],
        ATTEMPT_HEADER: history.attempt,
        WORKER_DEATHS_HEADER: bounded(history.worker_deaths + isinstance(error, WorkerDiedError)),
        OWN_PREFIX + "routing-key": first_routing_key(message),
        OWN_PREFIX + "died-at": died_at.astimezone(UTC).isoformat(),
    }
    bare = AmqpMessage(message.body, delivery_mode=DeliveryMode.PERSISTENT)
    copies = (
        _copy(
            message, _foreign(message, max_frame_bytes) | sendable(kept_deaths(message)) | reason
        ),
        _copy(message, reason),
    )
    return *(one for one in copies if _fits(one, max_frame_bytes)), bare


def postponed(
    message: Message, lane: Lane, history: History, max_frame_bytes: int
) -> Sequence[AmqpMessage]:
    """A job that is to come back by its lane: whole, and without the publisher's headers.

    The second is for a broker that refuses the first. Without our headers it would not come back,
    so there is no third.
    """
    headers: FieldTable = {
        ATTEMPT_HEADER: bounded(history.attempt),
        WORKER_DEATHS_HEADER: bounded(history.worker_deaths),
        # At the end of the delay, the broker routes by this key as well.
        "CC": [routing_key(lane)],
    }
    if message.expires_at is not None:
        headers[EXPIRES_AT_HEADER] = message.expires_at.isoformat()
    whole = _copy(message, _foreign(message, max_frame_bytes) | headers)
    plain = _copy(message, headers)
    return (whole, plain) if _fits(whole, max_frame_bytes) else (plain,)


def first_routing_key(message: Message) -> str:
    """The key that the publisher used; after a delay, the message's own is the delay's name."""
    match message.headers.get("CC"):
        # Only these keys come from us; any other was forged beside the attempt.
        case [str(key)] if ATTEMPT_HEADER in message.headers and key in _LANE_KEYS:
            return key
        case _:
            return message.routing_key


def _copy(message: Message, headers: FieldTable) -> AmqpMessage:
    return AmqpMessage(
        message.body,
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=message.message_id,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        timestamp=message.timestamp,
        headers=headers,
    )


def _foreign(message: Message, max_frame_bytes: int) -> FieldTable:
    # Half a frame is left for our headers, and for the broker's when it moves the copy on.
    return sendable(publishers_headers(message.headers), max_frame_bytes // 2)


def _fits(message: AmqpMessage, max_frame_bytes: int) -> bool:
    """Whether properties and headers fit into a frame; they have one, the body any number."""
    header = ContentHeader(body_size=len(message.body), properties=message.properties)
    return len(frame.marshal(header, 0)) <= max_frame_bytes
