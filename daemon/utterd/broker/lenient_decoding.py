"""Keeps one strange message from cutting off every consumer.

pamqp raises when it meets a property that Python can't hold: a timestamp beyond the year 9999,
a short string or a header's name that is not UTF-8, a header table nested too deeply. aiormq
then loses the connection, the broker delivers the same message again, and with it every other
one in hand, until all of them have reached their delivery limit. So such properties decode to
nothing instead, and the message meets the ordinary checks.
"""

import struct
from collections.abc import Callable
from functools import wraps

from pamqp import decode
from pamqp.common import FieldValue

Decoder = Callable[[bytes], tuple[int, FieldValue]]

_UNDECODABLE = (ValueError, OverflowError, OSError, ArithmeticError, RecursionError)
_TIMESTAMP_BYTES = 8


def decode_leniently() -> None:
    """Make pamqp lenient, in this process and once for all connections."""
    if hasattr(decode.METHODS["table"], "__wrapped__"):
        return
    decode.METHODS["table"] = _or(_empty_table, decode.field_table)
    decode.METHODS["shortstr"] = _or(_repaired_text, decode.short_str)
    timestamp = _or(_no_instant, decode.timestamp)
    decode.METHODS["timestamp"] = decode.TABLE_MAPPING[b"T"] = timestamp


def _or(substitute: Decoder, decoder: Decoder) -> Decoder:
    @wraps(decoder)
    def lenient(value: bytes) -> tuple[int, FieldValue]:
        try:
            return decoder(value)
        except _UNDECODABLE:
            return substitute(value)

    return lenient


def _empty_table(value: bytes) -> tuple[int, FieldValue]:
    (length,) = struct.unpack_from(">I", value)
    return 4 + length, {}


def _repaired_text(value: bytes) -> tuple[int, FieldValue]:
    length = value[0]
    text = value[1 : 1 + length].decode("utf-8", "replace")
    # One byte for each repair: the text must fit into a short string again on its way out.
    return 1 + length, text.replace("\N{REPLACEMENT CHARACTER}", "?")


def _no_instant(_value: bytes) -> tuple[int, FieldValue]:
    return _TIMESTAMP_BYTES, None
