"""Which headers of a stranger's message are sent on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import encode

from utterd.broker.foreign_headers import publishers_headers, sendable

OWN = {"x-utterd-error-code": "engine_failed", "x-utterd-attempt": 4, "x-utterd-anything": [1]}


def test_only_the_publishers_headers_are_left():
    """What the broker or utterd wrote, and what would send copies elsewhere, is dropped."""
    own = {"traceparent": "00-1-2-01", "x-mine": 1, "cloudEvents_specversion": "1.0"}
    added = dict.fromkeys(
        ("x-death", "x-first-death-queue", "x-last-death-reason", "x-delivery-count", "CC", "BCC")
    )
    assert publishers_headers(own | added | OWN | {"x-utterd-expires-at": "now"}) == own


@pytest.mark.parametrize("value", [b"\xff\xfe", 1e300, {"nested": [b"\xff"]}, object()])
def test_what_cannot_be_written_is_left_out(value):
    """One such header costs no other."""
    assert sendable({"strange": value, "kept": "yes"}) == {"kept": "yes"}


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=200)), st.integers(0, 2000))
def test_what_is_left_fits(headers, room_bytes):
    """However many there are."""
    kept = sendable(headers, room_bytes)
    assert kept.items() <= headers.items()
    assert len(encode.field_table(kept)) <= max(room_bytes, 4)
