"""Which headers of a message are its publisher's own, and can be sent on. Pure."""

from collections.abc import Mapping
from typing import TypeVar, cast

from pamqp import encode
from pamqp.common import FieldTable

Value = TypeVar("Value")

OWN_PREFIX = "x-utterd-"
"""Of the headers that only utterd writes."""

_BROKERS_PREFIXES = ("x-death", "x-first-death-", "x-last-death-")
_BROKERS_NAMES = (
    # By these it routes: a copy of ours would go wherever a stranger wished.
    "CC",
    "BCC",
    # By these it counts, and what the daemons read of them must be the broker's word.
    "x-delivery-count",
    "x-acquired-count",
)


def publishers_headers(headers: Mapping[str, Value]) -> dict[str, Value]:
    """The headers without those of the broker and of utterd, whoever wrote them.

    The broker drops a message that it would dead-letter to a queue where, as its notes tell, it
    was before, and fails at notes that it can't have written.
    """
    return {
        name: value
        for name, value in headers.items()
        if not name.startswith((OWN_PREFIX, *_BROKERS_PREFIXES)) and name not in _BROKERS_NAMES
    }


def sendable(headers: Mapping[str, object], room_bytes: float = float("inf")) -> FieldTable:
    """The headers as far as they can be written, and fit.

    Left out are those that would make the table too large, and those that AMQP can carry but our
    library can't write, such as text that is not UTF-8.

    Args:
        headers: of a stranger.
        room_bytes: how large their table may be.
    """
    kept: FieldTable = {}
    for name, value in headers.items():
        header = cast("FieldTable", {name: value})
        try:
            size_bytes = len(encode.field_table(header))
        except (TypeError, ValueError, OverflowError):
            continue
        if size_bytes <= room_bytes:
            room_bytes -= size_bytes
            kept |= header
    return kept
