"""The broker's notes of how often it moved a message on by itself. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from pamqp.common import FieldArray, FieldTable

from utterd.broker.foreign_headers import OWN_PREFIX
from utterd.broker.message import HeaderValue, Message, bounded

BROKERS_HEADER = "x-death"
KEPT_HEADER = OWN_PREFIX + "history"
"""The same notes in a copy of ours, where the broker doesn't act on them."""

_MAX_KEPT = 4
_MAX_KEPT_CHARS = 128

_MILLISECONDS = re.compile("[0-9]{1,12}")


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


def deaths_of(message: Message) -> Iterator[Death]:
    """What the broker noted in a message, the latest first; a stranger may have forged it."""
    entries = message.headers.get(BROKERS_HEADER, message.headers.get(KEPT_HEADER))
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping):
            yield Death(
                reason=visible(str(entry.get("reason", ""))),
                queue=visible(str(entry.get("queue", ""))),
                count=_count(entry.get("count")),
                at=zoned(entry.get("time")),
                expiration_s=_seconds(entry.get("original-expiration")),
            )


def kept_deaths(message: Message) -> FieldTable:
    """The latest notes as a header of ours, bounded; nothing where there are none."""
    kept: list[FieldTable] = [
        {
            "reason": death.reason[:_MAX_KEPT_CHARS],
            "queue": death.queue[:_MAX_KEPT_CHARS],
            "count": bounded(death.count),
            "time": death.at,
        }
        for death, _ in zip(deaths_of(message), range(_MAX_KEPT), strict=False)
    ]
    return {KEPT_HEADER: cast("FieldArray", kept)} if kept else {}


def visible(text: str) -> str:
    """A stranger's text without what moves the cursor of a terminal."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def zoned(value: HeaderValue) -> datetime | None:
    """An instant of AMQP, which is in UTC, with its zone; None for anything else."""
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _count(value: HeaderValue) -> int:
    return value if isinstance(value, int) else 0


def _seconds(milliseconds: HeaderValue) -> float | None:
    """The broker writes an expiration as the publisher has to: digits in a string."""
    if not isinstance(milliseconds, str) or not _MILLISECONDS.fullmatch(milliseconds):
        return None
    return int(milliseconds) / 1000
