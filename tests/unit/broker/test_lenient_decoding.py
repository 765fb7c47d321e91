"""Properties that Python can't hold reach the checks as nothing, and end no connection."""

import struct

import pytest
from pamqp import decode

from utterd.broker.lenient_decoding import decode_leniently


@pytest.fixture(autouse=True)
def _lenient(monkeypatch):
    """Both tables are as pamqp made them again after each test."""
    monkeypatch.setattr(decode, "METHODS", dict(decode.METHODS))
    monkeypatch.setattr(decode, "TABLE_MAPPING", dict(decode.TABLE_MAPPING))
    decode_leniently()


def table(content):
    return struct.pack(">I", len(content)) + content


@pytest.mark.parametrize("seconds", [2**63 - 1, 2**64 - 1, 253402300800000])
def test_an_impossible_timestamp_is_none(seconds):
    """Its eight bytes are passed over."""
    assert decode.by_type(struct.pack(">Q", seconds), "timestamp") == (8, None)


def test_an_impossible_timestamp_spares_the_other_headers():
    """Only the value itself is lost."""
    content = b"\x01aT" + struct.pack(">Q", 2**63) + b"\x01bt\x01"
    assert decode.by_type(table(content), "table") == (4 + len(content), {"a": None, "b": True})


def test_a_short_string_that_is_not_utf8_is_repaired():
    """Each bad byte becomes a question mark, so that the text grows by nothing."""
    assert decode.by_type(b"\x03a\xffb", "shortstr") == (4, "a?b")
    _, longest = decode.by_type(b"\xff" * 256, "shortstr")
    assert len(longest.encode()) == 255


@pytest.mark.parametrize(
    "content",
    [
        b"\x01\xfft\x01",
        b"\x01a?what",
        b"\x01aF" + b"\xff\xff\xff\xff",
        b"\x7fa",
    ],
    ids=["name not UTF-8", "unknown type", "length beyond the end", "name beyond the end"],
)
def test_a_table_that_makes_no_sense_is_empty(content):
    """What follows it is found all the same."""
    assert decode.by_type(table(content) + b"rest", "table") == (4 + len(content), {})


def test_a_table_nested_too_deeply_is_empty():
    """A frame has room for thousands of levels."""
    content = b""
    for _ in range(15_000):
        content = b"\x01aF" + table(content)
    assert decode.by_type(table(content), "table") == (4 + len(content), {})


def test_what_pamqp_can_decode_stays_as_it_is():
    """Leniency changes no sound value, and twice is as good as once."""
    decode_leniently()
    assert decode.by_type(b"\x02hi", "shortstr") == (3, "hi")
    assert decode.by_type(table(b"\x01at\x01"), "table") == (8, {"a": True})
