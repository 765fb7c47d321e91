"""What of a stranger's message is sent on."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import frame
from pamqp.header import ContentHeader

from utterd.broker.copies import first_routing_key, obituaries, postponed
from utterd.broker.deaths import deaths_of
from utterd.broker.message import MAX_COUNT, History, Message
from utterd.config import Lane
from utterd.errors import UnknownVoiceError, WorkerDiedError

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
FRAME_BYTES = 128 * 1024
SMALLEST_FRAME_BYTES = 4096
ERROR = UnknownVoiceError("choose another voice")

_FORGED = {
    "CC": ["lapsed"],
    "BCC": ["lapsed"],
    "x-death": ["a"],
    "x-first-death-queue": "a",
    "x-last-death-reason": "a",
    "x-delivery-count": 9,
    "x-utterd-error-code": "forged",
}


def buried(message, frame_bytes=FRAME_BYTES, error=ERROR):
    return obituaries(message, error, frame_bytes, died_at=NOON)


def frame_size_bytes(copy) -> int:
    header = ContentHeader(body_size=len(copy.body), properties=copy.properties)
    return len(frame.marshal(header, 1))


@pytest.mark.parametrize("copies_of", ["obituaries", "postponed"])
def test_no_copy_has_what_the_broker_routes_or_counts_by(copies_of):
    """A publisher can send no copy of ours anywhere, and give it no past."""
    message = Message(body=b"1", routing_key="synthesize.batch", headers=_FORGED | {"mine": 1})
    if copies_of == "obituaries":
        copies = buried(message)
    else:
        copies = postponed(message, Lane.BATCH, History(2, 0), FRAME_BYTES)
    assert copies[0].headers["mine"] == 1
    for copy in copies:
        foreign = {name for name in copy.headers if not name.startswith("x-utterd-")}
        assert foreign - {"mine"} <= {"CC"}
        assert copy.headers.get("CC") in (None, ["synthesize.batch"])
        assert "forged" not in copy.headers.values()


def test_less_and_less_is_left_of_a_dead_job():
    """Without the publisher's headers there is the reason, and in the end the body."""
    whole, plain, bare = buried(Message(body=b"1", message_id="m-1", headers={"mine": 1}))
    assert (whole.headers["mine"], whole.message_id) == (1, "m-1")
    assert set(whole.headers) - set(plain.headers) == {"mine"}
    assert (bare.body, bare.headers, bare.message_id) == (b"1", {}, None)


@pytest.mark.parametrize("deaths", [2**63 - 1, MAX_COUNT, 10**30])
def test_a_forged_count_can_be_written(deaths):
    """However many workers a stranger says have died, one more fits into the header."""
    message = Message(
        body=b"", headers={"x-utterd-worker-deaths": deaths, "x-utterd-attempt": deaths}
    )
    headers = buried(message, error=WorkerDiedError("the worker died"))[0].headers
    assert headers["x-utterd-worker-deaths"] == MAX_COUNT
    assert headers["x-utterd-attempt"] == MAX_COUNT


def test_the_brokers_notes_are_kept_where_the_broker_does_not_read_them():
    """As many as tell something, each cut to what tells something."""
    note = {"reason": "expired", "queue": "tts.jobs.batch", "count": 1, "time": NOON}
    forged = [note, {"reason": "r" * 10_000, "queue": "q" * 10_000, "count": 2**63 - 1}]
    copy = buried(Message(body=b"", headers={"x-death": forged * 1000}))[0]
    kept = list(deaths_of(Message(body=b"", headers=copy.headers)))
    assert (kept[0].reason, kept[0].queue, kept[0].at) == ("expired", "tts.jobs.batch", NOON)
    assert len(kept) == 4
    assert frame_size_bytes(copy) < 2500


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({}, "10s"),
        ({"CC": ["synthesize.interactive"]}, "10s"),
        ({"CC": ["synthesize.interactive"], "x-utterd-attempt": 2}, "synthesize.interactive"),
        ({"CC": ["A" * 65_400], "x-utterd-attempt": 1}, "10s"),
        ({"CC": "synthesize.batch", "x-utterd-attempt": 1}, "10s"),
    ],
)
def test_only_a_lane_is_believed_to_be_the_first_key(headers, key):
    """After a delay the lane stands in `CC`; anything else there was not written by us."""
    assert first_routing_key(Message(body=b"", routing_key="10s", headers=headers)) == key


@given(
    headers=st.dictionaries(
        st.sampled_from(["CC", "x-death", "x-utterd-attempt", "a", "b"]),
        st.integers(-(2**63), 2**63 - 1)
        | st.lists(st.sampled_from(["lapsed", "A" * 3000]))
        | st.text(max_size=3000),
    ),
    frame_bytes=st.integers(SMALLEST_FRAME_BYTES, FRAME_BYTES),
    text=st.text(max_size=60),
)
def test_every_copy_fits_into_a_frame(headers, frame_bytes, text):
    """Whatever the connection has settled on and a stranger has written."""
    message = Message(
        body=b"1",
        routing_key=text,
        message_id=text,
        correlation_id=text,
        reply_to=text,
        content_type=text,
        content_encoding=text,
        headers=headers,
    )
    copies = (
        *buried(message, frame_bytes),
        *postponed(message, Lane.BATCH, History(2, 0), frame_bytes),
    )
    for copy in copies:
        assert frame_size_bytes(copy) <= frame_bytes
