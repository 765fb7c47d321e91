"""How a job died, read from its headers. Pure."""

from dataclasses import dataclass
from datetime import datetime

from utterd.broker.deaths import Death, deaths_of, visible, zoned
from utterd.broker.foreign_headers import OWN_PREFIX
from utterd.broker.message import Message
from utterd.broker.topology import routing_key
from utterd.config import BrokerSettings, Lane

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
        reason, died_at = UNROUTED, zoned(message.timestamp)
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


def _lane(message: Message, died_in: Lane | None) -> Lane:
    """The lane to send it back by."""
    copies = message.headers.get("CC")
    # A job that waited for another attempt has its lane in `CC`, and a delay as its key.
    keys = [_text(message, "routing-key"), *(copies if isinstance(copies, list) else ())]
    named = next((lane for key in keys for lane in Lane if key == routing_key(lane)), None)
    return named or died_in or Lane.BATCH


def _text(message: Message, name: str) -> str | None:
    value = message.text_header(OWN_PREFIX + name)
    return None if value is None else visible(value)


def _instant(written: str | None) -> datetime | None:
    try:
        instant = datetime.fromisoformat(written or "")
    except ValueError:
        return None
    return instant if instant.tzinfo else None
