"""How a job died, read from its headers. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from utterd.broker.message import HeaderValue, Message
from utterd.broker.publisher import REASON_HEADER_PREFIX
from utterd.broker.topology import routing_key
from utterd.config import BrokerSettings, Lane

Value = TypeVar("Value")

UNROUTED = "unrouted"

_BROKERS_REASONS = {
    "delivery_limit": (
        "it was delivered too often without a settlement: it may kill the whole daemon. Look at"
        " the daemons' logs before you send it back"
    ),
    "expired": "it waited in its lane for longer than its AMQP expiration allows",
    "rejected": "the daemon met a fault of its own: look for delivery_met_a_bug in its log",
    "maxlen": "its lane was too long",
    UNROUTED: "its routing key fits no lane: correct it where it is published",
}

_MILLISECONDS = re.compile("[0-9]{1,12}")

_BROKERS_HEADER_PREFIXES = ("x-death", "x-first-death-", "x-last-death-")
# The first two are the broker's count of this look; the others would send copies elsewhere.
_NOT_TO_BE_SENT_ON = ("x-delivery-count", "x-acquired-count", "CC", "BCC")


@dataclass(frozen=True, slots=True)
class Death:
    """One time that the broker moved the message on by itself, as `x-death` tells.

    Attributes:
        reason: the broker's word, such as `expired`.
        queue: that it lay in.
        count: how often that happened there.
        at: the last time, to the second.
        expiration_s: the AMQP expiration that the broker took off.
    """

    reason: str
    queue: str
    count: int
    at: datetime | None
    expiration_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Obituary:
    """How a job died.

    Attributes:
        reason: an error code, or what the broker did, such as `delivery_limit`.
        explanation: a sentence for a person.
        lane: that it came by, or `batch` where nothing tells.
        attempts: how often a daemon tried it, as far as headers tell.
        worker_deaths: how many of these ended with a dead worker.
        died_at: where anything tells.
        deaths: what the broker noted on the way, the latest first.
    """

    reason: str
    explanation: str
    lane: Lane
    attempts: int
    worker_deaths: int
    died_at: datetime | None
    deaths: tuple[Death, ...]


def read_obituary(message: Message, settings: BrokerSettings) -> Obituary:
    """How the job in a message from the queue of the dead got there."""
    deaths = tuple(deaths_of(message))
    lanes = {settings.queues.of_lane(lane): lane for lane in Lane}
    in_a_lane = next((death for death in deaths if death.queue in lanes), None)
    code = _text(message, "error-code")
    if code is not None:
        reason, died_at = code, _instant(_text(message, "died-at"))
    elif in_a_lane is not None:
        reason, died_at = in_a_lane.reason, in_a_lane.at
    else:
        # It went straight here, so it died when it was published.
        reason, died_at = UNROUTED, _zoned(message.timestamp)
    history = message.history
    return Obituary(
        reason=reason,
        explanation=_text(message, "error-message") or _BROKERS_REASONS.get(reason, ""),
        lane=_lane(message, lanes[in_a_lane.queue] if in_a_lane else None),
        attempts=history.attempt,
        worker_deaths=history.worker_deaths,
        died_at=died_at,
        deaths=deaths,
    )


def publishers_headers(headers: Mapping[str, Value]) -> dict[str, Value]:
    """The headers without those of the broker and of utterd."""
    foreign = (REASON_HEADER_PREFIX, *_BROKERS_HEADER_PREFIXES)
    return {
        name: value
        for name, value in headers.items()
        if not name.startswith(foreign) and name not in _NOT_TO_BE_SENT_ON
    }


def visible(text: str) -> str:
    """A stranger's text without what moves the cursor of a terminal."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def _lane(message: Message, died_in: Lane | None) -> Lane:
    """The lane to send it back by."""
    copies = message.headers.get("CC")
    # A job that waited for another attempt has its lane in `CC`, and a delay as its key.
    keys = [_text(message, "routing-key"), *(copies if isinstance(copies, list) else ())]
    named = next((lane for key in keys for lane in Lane if key == routing_key(lane)), None)
    return named or died_in or Lane.BATCH


def _text(message: Message, name: str) -> str | None:
    value = message.text_header(REASON_HEADER_PREFIX + name)
    return None if value is None else visible(value)


def _instant(written: str | None) -> datetime | None:
    try:
        instant = datetime.fromisoformat(written or "")
    except ValueError:
        return None
    return instant if instant.tzinfo else None


def deaths_of(message: Message) -> Iterator[Death]:
    """What the broker noted in a message, the latest first; a stranger may have forged it."""
    entries = message.headers.get("x-death")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping):
            yield Death(
                reason=visible(str(entry.get("reason", ""))),
                queue=visible(str(entry.get("queue", ""))),
                count=_count(entry.get("count")),
                at=_zoned(entry.get("time")),
                expiration_s=_seconds(entry.get("original-expiration")),
            )


def _count(value: HeaderValue) -> int:
    return value if isinstance(value, int) else 0


def _seconds(milliseconds: HeaderValue) -> float | None:
    """The broker writes an expiration as the publisher has to: digits in a string."""
    if not isinstance(milliseconds, str) or not _MILLISECONDS.fullmatch(milliseconds):
        return None
    return int(milliseconds) / 1000


def _zoned(value: HeaderValue) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)
