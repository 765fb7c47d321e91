"""A message from the broker, and the three ways to settle it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from utterd.config import Lane

HeaderValue = object
"""Whatever an AMQP table can carry; publishers choose it, so nothing is taken for granted."""

ATTEMPT_HEADER = "x-utterd-attempt"
WORKER_DEATHS_HEADER = "x-utterd-worker-deaths"
EXPIRES_AT_HEADER = "x-utterd-expires-at"
DELIVERY_COUNT_HEADER = "x-delivery-count"
TRACE_HEADERS = ("traceparent", "tracestate")

MAX_COUNT = 1000
"""More attempts than any job has; what claims more was forged, and might fit into no field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as it was published; everything in it was chosen by a stranger.

    Attributes:
        body: undecoded bytes.
        expiration_s: the AMQP expiration.
        timestamp: when it was published, as the publisher says, to the second.
        redelivered: whether the broker has handed it out before, as the broker itself says.
        headers: the AMQP header table.
    """

    body: bytes
    routing_key: str = ""
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    priority: int | None = None
    expiration_s: float | None = None
    timestamp: datetime | None = None
    redelivered: bool = False
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)

    def text_header(self, name: str) -> str | None:
        """A header's value if it is text."""
        value = self.headers.get(name)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        return value if isinstance(value, str) else None

    @property
    def history(self) -> "History":
        """What earlier attempts left in headers of our own."""
        return History(
            attempt=max(1, bounded(self.count_header(ATTEMPT_HEADER))),
            worker_deaths=bounded(self.count_header(WORKER_DEATHS_HEADER)),
        )

    def count_header(self, header: str) -> int:
        """A header's value if it is a positive whole number, else 0."""
        value = self.headers.get(header)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0

    @property
    def expires_at(self) -> datetime | None:
        """When the publisher's AMQP expiration is over, where a timestamp tells its start.

        A message that waited for another attempt has lost that property, and carries the
        instant in a header.
        """
        if (written := self.text_header(EXPIRES_AT_HEADER)) is not None:
            return _instant(written)
        if self.expiration_s is None or self.timestamp is None:
            return None
        try:
            return self.timestamp + timedelta(seconds=self.expiration_s)
        except OverflowError:
            # A stranger's timestamp may lie at the end of the calendar.
            return None

    def age_s(self, now: datetime) -> float | None:
        """Seconds since the publisher's timestamp, never negative."""
        if self.timestamp is None:
            return None
        published = self.timestamp
        if published.tzinfo is None:
            published = published.replace(tzinfo=UTC)
        return max(0.0, (now - published).total_seconds())


def bounded(count: int) -> int:
    """A count as it is read and written: from 0 to `MAX_COUNT`."""
    return max(0, min(count, MAX_COUNT))


def _instant(written: str) -> datetime | None:
    try:
        instant = datetime.fromisoformat(written)
    except ValueError:
        return None
    return instant if instant.tzinfo else None


@dataclass(frozen=True, slots=True)
class History:
    """How a job fared so far.

    Attributes:
        attempt: 1 at the first delivery.
        worker_deaths: earlier attempts that ended with a dead worker.
    """

    attempt: int
    worker_deaths: int


FIRST_ATTEMPT = History(attempt=1, worker_deaths=0)


class Arrival(Protocol):
    """A message, and the lane that it came by."""

    @property
    def message(self) -> Message: ...

    @property
    def lane(self) -> Lane: ...


class Delivery(Arrival, Protocol):
    """One handing-over of a message. Exactly one of the three settlements follows it.

    Where it was lost before, none does. A settlement never raises for a channel that is gone: the
    broker delivers again, and the second pass finds the audio in the store.
    """

    @property
    def is_lost(self) -> bool:
        """Whether the broker has taken it back, so that somebody else may tell of the job."""
        ...

    async def ack(self) -> None:
        """It is done with: the broker may forget it."""
        ...

    async def reject(self) -> None:
        """It can't be done: the broker dead-letters it."""
        ...

    async def release(self) -> None:
        """It was not begun: the broker gives it to another daemon."""
        ...
