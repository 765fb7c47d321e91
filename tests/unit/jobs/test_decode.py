"""What becomes of bytes from strangers."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.broker.message import FIRST_ATTEMPT, Message
from utterd.config import Lane
from utterd.jobs.decode import UndecodableError, decode, sender_of
from utterd_schemas.errors import ErrorCode
from utterd_schemas.job import FIELD_NAMES

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
MAX_BYTES = 4096
MARKER = "zebra-quartz"
CLOUDEVENT = "application/cloudevents+json"
# Without the time, which would give a test of these bytes another name in each run.
packed = partial(gzip.compress, mtime=0)


@pytest.fixture
def order_of(make_delivery):
    def read(body, **properties):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return decode(make_delivery(raw, **properties), max_bytes=MAX_BYTES, now=NOW)

    return read


@pytest.fixture
def refusal_of(order_of):
    def refuse(body, **properties):
        with pytest.raises(UndecodableError) as caught:
            order_of(body, **properties)
        return caught.value

    return refuse


def test_plain_json_is_a_job(order_of):
    """A JSON object becomes a job with its id, its labels and its lane."""
    order = order_of({"job_id": "a", "text": "Hello.", "labels": {"page": "3"}})
    assert (order.job_id, order.job.text, order.lane) == ("a", "Hello.", Lane.INTERACTIVE)
    assert order.sender.labels == {"page": "3"}


@pytest.mark.parametrize("prefix", ["cloudEvents_", "cloudEvents:"])
def test_a_binary_cloudevent_is_a_job(order_of, prefix):
    """Attributes in headers of either prefix leave the body a plain job; the subject names it."""
    headers = {f"{prefix}specversion": "1.0", f"{prefix}subject": "from-subject"}
    order = order_of({"text": "Hello."}, headers=headers, message_id="m")
    assert (order.job.text, order.job_id) == ("Hello.", "from-subject")


def test_headers_may_come_as_bytes(order_of):
    """Attributes that a client sent as byte strings are read as text."""
    headers = {"cloudEvents_specversion": b"1.0", "cloudEvents_subject": b"s"}
    assert order_of({"text": "Hello."}, headers=headers).job_id == "s"


@pytest.mark.parametrize("content_type", [CLOUDEVENT, f"{CLOUDEVENT}; charset=utf-8"])
def test_a_structured_cloudevent_is_a_job(order_of, content_type):
    """The job stands under `data`, and the subject names it."""
    event = {"specversion": "1.0", "subject": "s", "data": {"text": "Hello."}}
    order = order_of(event, content_type=content_type)
    assert (order.job.text, order.job_id) == ("Hello.", "s")


@pytest.mark.parametrize("encoding", ["gzip", " GZIP "])
def test_gzip_is_unpacked(order_of, encoding):
    """A compressed body is the same job, also in several members."""
    assert order_of(packed(b'{"text":"a"}'), content_encoding=encoding).job.text == "a"
    parts = packed(b'{"text":') + packed(b'"b"}')
    assert order_of(parts, content_encoding=encoding).job.text == "b"


@pytest.mark.parametrize(
    ("body", "properties", "code"),
    [
        (b"", {}, ErrorCode.INVALID_JSON),
        (b'{"text": "hi"', {}, ErrorCode.INVALID_JSON),
        (b"\xef\xbb\xbf{}", {}, ErrorCode.INVALID_JSON),
        (b'{"text":"a","speed":NaN}', {}, ErrorCode.INVALID_JSON),
        (b'{"text":"a","speed":-Infinity}', {}, ErrorCode.INVALID_JSON),
        (b'{"text":"a","seed":' + b"9" * 4000 + b"}", {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","speed":1e999}', {}, ErrorCode.INVALID_FIELD),
        (b"[" * 2000 + b"]" * 2000, {}, ErrorCode.INVALID_JSON),
        (b'{"a":' * 700, {}, ErrorCode.INVALID_JSON),
        (b'{"text":' + b"[" * 15 + b"]" * 15 + b"}", {}, ErrorCode.INVALID_FIELD),
        (b'{"text":' + b"[" * 300 + b"]" * 300 + b"}", {}, ErrorCode.INVALID_JSON),
        (b"[]", {}, ErrorCode.INVALID_FIELD),
        (b"null", {}, ErrorCode.INVALID_FIELD),
        (b'"text"', {}, ErrorCode.INVALID_FIELD),
        (b"{}", {}, ErrorCode.INVALID_FIELD),
        (b'{"text":1}', {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","ssml":"<speak/>"}', {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","speed":0}', {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","speed":-1}', {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","speed":1000}', {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","speed":true}', {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","speed":"1"}', {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","voice":"\\ud83d"}', {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","labels":{"\\ud83d":"b"}}', {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","job_id":"a\\u0000b"}', {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","sample_rate_hz":7999}', {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","expires_at":1893456000}', {}, ErrorCode.INVALID_FIELD),
        (b'{"text":"a","lang":"en"}', {}, ErrorCode.UNKNOWN_FIELD),
        (b'{"text":"\xff"}', {}, ErrorCode.INVALID_ENCODING),
        ('{"text":"a"}'.encode("utf-16"), {}, ErrorCode.INVALID_ENCODING),
        (b'{"text":"\xed\xa0\xbd"}', {}, ErrorCode.INVALID_ENCODING),
        (b"{}", {"content_encoding": "br"}, ErrorCode.INVALID_ENCODING),
        (b"{}", {"content_encoding": "gzip"}, ErrorCode.INVALID_ENCODING),
        (packed(b"{}")[:-3], {"content_encoding": "gzip"}, ErrorCode.INVALID_ENCODING),
        (packed(b"{}") + b"!", {"content_encoding": "gzip"}, ErrorCode.INVALID_ENCODING),
        (packed(b" " * 10**7), {"content_encoding": "gzip"}, ErrorCode.MESSAGE_TOO_LARGE),
        (b" " * (MAX_BYTES + 1), {}, ErrorCode.MESSAGE_TOO_LARGE),
        (b"[]", {"content_type": CLOUDEVENT}, ErrorCode.INVALID_ENVELOPE),
        (b"{}", {"content_type": CLOUDEVENT}, ErrorCode.INVALID_ENVELOPE),
        (b'{"specversion":"1.0"}', {"content_type": CLOUDEVENT}, ErrorCode.INVALID_ENVELOPE),
        (b'{"specversion":"1.0","data":5}', {"content_type": CLOUDEVENT}, ErrorCode.INVALID_FIELD),
        (
            b'{"text":"a"}',
            {"headers": {"cloudEvents_specversion": "0.3"}},
            ErrorCode.INVALID_ENVELOPE,
        ),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_bad_input_has_a_stable_code(refusal_of, body, properties, code):
    """Each kind of bad input is refused under its own code, for good, to its sender."""
    refusal = refusal_of(body, message_id="m", **properties)
    assert refusal.error.code is code
    assert not refusal.error.retryable
    assert refusal.sender.job_id == "m"


def test_a_body_of_the_largest_size_is_taken(order_of):
    """The limit itself is legal, packed and unpacked."""
    body = b'{"text":"a"}'.ljust(MAX_BYTES)
    assert order_of(body).job.text == "a"
    assert order_of(packed(body), content_encoding="gzip").job.text == "a"


def test_what_unicode_repair_mends_is_no_reason_to_refuse(order_of):
    """NUL stays for the front end to drop, and half a surrogate pair is dropped at once."""
    assert order_of(b'{"text":"a\\u0000b"}').job.text == "a\0b"
    assert order_of(b'{"text":"price \\ud83d ok"}').job.text == "price  ok"


def test_the_last_of_duplicate_keys_counts(order_of):
    """A key that stands twice is read as every JSON library of Python reads it."""
    assert order_of(b'{"text":"a","text":"b"}').job.text == "b"


def test_unknown_fields_of_a_newer_contract_are_passed_over(order_of, refusal_of):
    """A job of a higher schema may hold what we don't know; a job of ours may not."""
    job = {"text": "hello", "lang": "en", "x_future": {"a": [1, 2]}}
    assert order_of({**job, "schema": 99}).job.text == "hello"
    assert refusal_of({**job, "schema": 1}).error.code is ErrorCode.UNKNOWN_FIELD


def test_a_misspelt_field_is_told_its_nearest(refusal_of):
    """The refusal suggests the field that was most likely meant, and lists all."""
    error = refusal_of({"text": "a", "voise": "b"}).error
    assert "did you mean `voice`?" in error.message
    assert error.detail["known_fields"] == sorted(FIELD_NAMES)


@pytest.mark.parametrize(
    "job",
    [
        {"text": MARKER, "speed": 0},
        {"text": [MARKER]},
        {"text": "a", MARKER: 1},
        {"text": "a", "ssml": MARKER},
        {"text": "a", "voice": MARKER * 20},
        {"text": "a", "language": MARKER},
        {"text": "a", "format": MARKER},
        {"text": "a", "marks": [MARKER]},
        {"text": "a", "expires_at": MARKER},
        {"text": "a", "labels": {MARKER * 9: "b"}},
        {"text": "a", "labels": {"b": {MARKER: 1}}},
        {"text": "a", "labels": {MARKER: 1}},
        {"text": "a", "seed": MARKER},
        {"text": "a", "schema": MARKER},
        [MARKER],
    ],
    ids=str,
)
def test_refusals_repeat_nothing_that_the_publisher_wrote(refusal_of, job):
    """Neither message nor detail holds the text, a value, or an unknown field's name."""
    error = refusal_of(job).error
    assert MARKER not in json.dumps(error.info().model_dump(mode="json"))


@pytest.mark.parametrize(
    ("body", "properties", "job_id"),
    [
        ({"job_id": "body", "speed": 0}, {}, "body"),
        ({"job_id": "body", "speed": 0}, {"message_id": "message"}, "body"),
        ({"job_id": 7}, {"message_id": "message"}, "message"),
        ({"job_id": ""}, {"message_id": "message"}, "message"),
        ({"job_id": "x" * 129}, {"message_id": "message"}, "message"),
        (b"{", {"message_id": "message"}, "message"),
        (b"{", {"message_id": "a\nb"}, None),
        (b"{", {"message_id": "x" * 129}, None),
        (b"{", {}, None),
        (
            {"specversion": "0.3", "subject": "subject", "data": {"text": "a"}},
            {"content_type": CLOUDEVENT, "message_id": "message"},
            "subject",
        ),
        (
            {"subject": "subject", "data": {"job_id": "body"}},
            {"content_type": CLOUDEVENT},
            "body",
        ),
        ({"subject": "subject"}, {"content_type": CLOUDEVENT}, "subject"),
        (
            {"speed": 0},
            {"headers": {"cloudEvents_specversion": "9", "cloudEvents_subject": "subject"}},
            "subject",
        ),
    ],
    ids=str,
)
def test_the_job_id_is_found_wherever_it_can_be_read(refusal_of, body, properties, job_id):
    """The job's own id comes first, then the envelope's subject, then the message's id."""
    assert refusal_of(body, **properties).sender.job_id == job_id


def test_a_refused_job_keeps_its_labels(refusal_of):
    """Labels that can be read go into the event; those that can't are left out."""
    assert refusal_of({"labels": {"a": "b"}}).sender.labels == {"a": "b"}
    assert refusal_of({"labels": {"a": 1}}).sender.labels == {}


def test_a_job_without_an_id_gets_the_same_one_at_each_delivery(order_of):
    """Its id comes from the message, so that a redelivery repeats its events."""
    first = order_of({"text": "a"}, timestamp=NOW, correlation_id="1")
    assert first.job_id == order_of({"text": "a"}, timestamp=NOW, correlation_id="1").job_id
    others = {
        order_of({"text": "b"}, timestamp=NOW, correlation_id="1").job_id,
        order_of({"text": "a"}, timestamp=NOW, correlation_id="2").job_id,
        order_of({"text": "a"}, timestamp=NOW + timedelta(seconds=1), correlation_id="1").job_id,
        order_of({"text": "a"}, timestamp=NOW, correlation_id="1", reply_to="q").job_id,
    }
    assert len(others - {first.job_id}) == 4


def test_the_earlier_expiry_counts(order_of):
    """The job's own instant and the message's time to live are both honoured."""
    job = {"text": "a", "expires_at": "2030-01-31T12:01:00Z"}
    assert order_of(job).expires_at == NOW + timedelta(minutes=1)
    late = order_of(job, timestamp=NOW, expiration_s=600.0)
    assert late.expires_at == NOW + timedelta(minutes=1)
    early = order_of(job, timestamp=NOW, expiration_s=5.0)
    assert early.expires_at == NOW + timedelta(seconds=5)
    assert order_of({"text": "a"}).expires_at is None


def test_an_order_knows_when_it_was_published(order_of):
    """By that, a cancel tells a job from one that was sent again after it."""
    assert order_of({"text": "a"}, timestamp=NOW).published_at == NOW
    assert order_of({"text": "a"}).published_at is None


def test_the_time_in_the_queue_is_measured(order_of):
    """It runs from the publisher's timestamp, and is unknown without one."""
    assert order_of({"text": "a"}, timestamp=NOW - timedelta(seconds=3)).queue_s == 3.0
    assert order_of({"text": "a"}, timestamp=NOW + timedelta(seconds=3)).queue_s == 0.0
    assert order_of({"text": "a"}).queue_s is None


def test_the_trace_context_is_kept_within_bounds(order_of):
    """`traceparent` and `tracestate` come along; what is no text or far too long does not."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"traceparent": parent, "tracestate": "x" * 513, "other": MARKER}
    assert order_of({"text": "a"}, headers=headers).sender.trace == {"traceparent": parent}
    assert order_of({"text": "a"}, headers={"traceparent": 5}).sender.trace == {}


@pytest.mark.parametrize("attempt", [0, -1, True, "7", None, 2.5, {"a": 1}])
def test_an_attempt_header_from_a_stranger_is_the_first_attempt(order_of, attempt):
    """Only our own kind of number counts."""
    order = order_of({"text": "a"}, headers={"x-utterd-attempt": attempt})
    assert order.sender.history == FIRST_ATTEMPT


def test_a_message_tells_its_sender_without_its_body():
    """What the properties tell is there, whatever the body is."""
    sender = sender_of(Message(body=b"{", message_id="m", correlation_id="c", reply_to="q"))
    assert (sender.job_id, sender.correlation_id, sender.reply_to) == ("m", "c", "q")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(
    body=st.binary()
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from([*sorted(FIELD_NAMES), MARKER]), JSON_VALUES).map(
        lambda value: json.dumps(value).encode()
    ),
    content_type=st.sampled_from([None, "application/json", CLOUDEVENT]) | st.text(),
    content_encoding=st.sampled_from([None, "gzip"]) | st.text(),
    message_id=st.none() | st.text(),
    headers=st.dictionaries(
        st.sampled_from(["cloudEvents_specversion", "cloudEvents_subject", "traceparent"]),
        JSON_VALUES | st.binary(),
    ),
)
def test_any_message_is_an_order_or_a_refusal(
    body, content_type, content_encoding, message_id, headers
):
    """Nothing else is raised, and an id that is told is printable and of legal length."""

    class AnyDelivery:
        message = Message(
            body=body,
            content_type=content_type,
            content_encoding=content_encoding,
            message_id=message_id,
            headers=headers,
        )
        lane = Lane.BATCH

    try:
        job_id = decode(AnyDelivery(), max_bytes=MAX_BYTES, now=NOW).job_id
    except UndecodableError as refusal:
        job_id = refusal.sender.job_id
        refusal.error.info().model_dump_json()
    assert job_id is None or (job_id.isprintable() and 1 <= len(job_id) <= 128)
