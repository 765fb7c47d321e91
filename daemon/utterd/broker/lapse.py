"""A job that the broker itself gave up: it waited too long, or was delivered too often. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime

from utterd.broker.deaths import deaths_of
from utterd.broker.message import DELIVERY_COUNT_HEADER, Message
from utterd.broker.topology import routing_key
from utterd.config import BrokerSettings, Lane

EXPIRED = "expired"
DELIVERY_LIMIT = "delivery_limit"

MAX_LOOKS_INSIDE = 5
"""After so many returns of a lapsed job, what kills daemons may be its body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lapse:
    """What the broker gave up, as an `Arrival` by its lane.

    Attributes:
        message: as it lay in its lane, its AMQP expiration put back.
        lane: that gave it up, or `batch` where nothing tells.
        reason: the broker's word, such as `expired`; empty where nothing tells.
        at: when, to the second.
        is_suspect: whether it was returned so often since then that its body is better left alone.
    """

    message: Message
    lane: Lane
    reason: str
    at: datetime | None
    is_suspect: bool

    @property
    def has_expired(self) -> bool:
        return self.reason == EXPIRED


def read_lapse(message: Message, settings: BrokerSettings) -> Lapse:
    """Why a message from the queue of the lapsed came there, and from where."""
    lanes = {settings.queues.of_lane(lane): lane for lane in Lane}
    death = next((death for death in deaths_of(message) if death.queue in lanes), None)
    lane = lanes[death.queue] if death else Lane.BATCH
    # Until its first return, the count is the lane's, or whatever its publisher wrote; from then
    # on it is the broker's own.
    returns = message.count_header(DELIVERY_COUNT_HEADER) if message.redelivered else 0
    return Lapse(
        message=replace(
            message,
            routing_key=routing_key(lane),
            expiration_s=death.expiration_s if death else None,
        ),
        lane=lane,
        reason=death.reason if death else "",
        at=death.at if death else None,
        is_suspect=returns >= MAX_LOOKS_INSIDE,
    )
