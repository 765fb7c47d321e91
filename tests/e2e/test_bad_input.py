"""Whatever publishers send through the real broker, the daemon settles it and lives on."""

import gzip
import json
from uuid import uuid4

import aio_pika
import pytest

pytestmark = [pytest.mark.sandbox, pytest.mark.usefixtures("daemon")]

MARKER = "zebra-quartz"
CLOUDEVENT = "application/cloudevents+json"
GZIP = {"content_encoding": "gzip"}


def job(**fields):
    return json.dumps({"text": f"Hello {MARKER}."} | fields).encode()


BAD_INPUT = {
    "invalid JSON (M-01)": (b'{"text": "zebra-quartz"', {}, "invalid_json"),
    "an empty body": (b"", {}, "invalid_json"),
    "no object": (b'["zebra-quartz"]', {}, "invalid_field"),
    "wrong types": (job(voice=7), {}, "invalid_field"),
    "an unknown field": (job(**{MARKER: 1}), {}, "unknown_field"),
    "an unknown voice": (job(voice=MARKER), {}, "unknown_voice"),
    "a language that the voice does not speak": (job(language="fr"), {}, "unsupported_language"),
    "an illegal rate": (
        job(format="opus", sample_rate_hz=22_050),
        {},
        "unsupported_output",
    ),
    "speed 0 (M-10)": (job(speed=0), {}, "invalid_field"),
    "speed -1 (M-10)": (job(speed=-1), {}, "invalid_field"),
    "speed 0.0001 (M-10)": (job(speed=0.0001), {}, "invalid_field"),
    "speed 1000 (M-10)": (job(speed=1000), {}, "invalid_field"),
    "speed not a number": (b'{"text": "zebra-quartz", "speed": NaN}', {}, "invalid_json"),
    "a megabyte of text": (job(text=f"{MARKER} " * 80_000), {}, "text_too_long"),
    "three megabytes": (b" " * 3 * 2**20, {}, "message_too_large"),
    "white space only (T-47)": (job(text=" \t\r\n\u00a0\u3000 "), {}, "empty_text"),
    "emoji only (T-48)": (job(text="\U0001f600\U0001f389"), {}, "empty_text"),
    "NUL only": (job(text="\0"), {}, "empty_text"),
    "a lone surrogate in a name": (job(voice="\ud83d"), {}, "invalid_field"),
    "a nesting bomb": (b"[" * 500_000, {}, "invalid_json"),
    "a nesting bomb in a field": (
        b'{"text": ' + b"[" * 500_000 + b"]" * 500_000 + b"}",
        {},
        "invalid_json",
    ),
    "a gzip bomb": (gzip.compress(b" " * 50 * 2**20), GZIP, "message_too_large"),
    "half a gzip": (gzip.compress(job())[:-9], GZIP, "invalid_encoding"),
    "no gzip": (job(), GZIP, "invalid_encoding"),
    "an unknown encoding": (job(), {"content_encoding": "br"}, "invalid_encoding"),
    "no UTF-8": (job().replace(b"Hello", b"\xff"), {}, "invalid_encoding"),
    "a broken envelope": (job(), {"content_type": CLOUDEVENT}, "invalid_envelope"),
}


@pytest.mark.parametrize(("body", "properties", "code"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
async def test_bad_input_is_settled_and_told(bus, daemon, body, properties, code):
    """A failed event, a copy with the reason, one log line without the text, and on it goes."""
    job_id = f"bad-{uuid4()}"
    await bus.publish(body, message_id=job_id, **properties)
    event = await bus.terminal(job_id)
    assert event["type"] == "io.utterd.synthesis.failed.v1"
    assert (event["data"]["error"]["code"], event["data"]["error"]["retryable"]) == (code, False)
    assert MARKER not in json.dumps(event)
    dead = await bus.buried(body)
    assert dead.headers["x-utterd-error-code"] == code
    assert dead.message_id == job_id
    assert (await bus.run("Good."))["bytes"] > 0
    assert await bus.waiting() == 0
    (line,) = [line for line in daemon.log if line.get("job_id") == job_id]
    assert (line["event"], line["code"]) == ("job_failed", code)
    assert MARKER not in daemon.log_path.read_text()


FORGED_HEADERS = {
    "copies to the lapsed": {"CC": ["lapsed"], "BCC": ["dead"]},
    "a first key that fills a frame": {"CC": ["A" * 65_400], "x-utterd-attempt": 1},
    "counts at the end of their range": {
        "x-utterd-attempt": 2**63 - 1,
        "x-utterd-worker-deaths": 2**63 - 1,
    },
    "notes that the broker can't read": {"x-death": ["a"], "x-first-death-queue": 5},
    "many deliveries": {"x-delivery-count": 2**63 - 1},
}


@pytest.mark.parametrize("reply_to", [None, "dead", "batch", "lapsed"])
@pytest.mark.parametrize("headers", FORGED_HEADERS.values(), ids=FORGED_HEADERS.keys())
async def test_forged_headers_give_a_job_no_second_end(bus, place, daemon, headers, reply_to):
    """One failed event and one copy, whatever the publisher wishes, and on it goes."""
    job_id = f"forged-{uuid4()}"
    body = json.dumps({"job_id": job_id, "text": ""}).encode()
    reply_queue = reply_to and getattr(place.broker.queues, reply_to)
    await bus.publish(body, headers=headers, reply_to=reply_queue)
    event = await bus.terminal(job_id)
    assert event["data"]["error"]["code"] == "empty_text"
    assert "CC" not in (await bus.buried(body)).headers
    # Events and copies come in order: what else there was came before these.
    assert (await bus.run("Good."))["bytes"] > 0
    await bus.publish(b"the last", message_id=f"last-{job_id}")
    await bus.buried(b"the last")
    await bus.until_lapsed(0)
    bus.dead.remove(await bus.buried(b"the last"))
    assert [one["id"] for one in bus.events if one["subject"] == job_id] == [event["id"]]
    assert [one.body for one in bus.dead].count(body) == 1
    assert await bus.waiting() == 0
    assert not [line for line in daemon.log if line.get("part") == "publishing"]


@pytest.mark.parametrize("body", [b'{"text": "anonymous', b"\x00\x01\x02"])
async def test_what_nobody_can_be_told_of_is_kept_with_its_reason(bus, daemon, body):
    """Without an id there is no event, but a copy and a log line."""
    await bus.publish(body)
    dead = await bus.buried(body)
    assert dead.headers["x-utterd-error-code"] in ("invalid_json", "invalid_encoding")
    assert await bus.run("Good.")
    assert "anonymous" not in daemon.log_path.read_text()
    assert all(event["subject"] for event in bus.events)


async def test_a_job_of_a_newer_contract_is_done(bus):
    """Fields that are unknown here are passed over when its schema number is higher (M-08)."""
    job_id = str(uuid4())
    await bus.publish(
        {
            "text": "hello",
            "lang": "en",
            "x_future": {"a": [1, 2]},
            "schema": 99,
            "job_id": job_id,
        }
    )
    assert await bus.completed(job_id)


async def test_half_a_surrogate_pair_is_left_out(bus):
    """The rest of the text is spoken (T-56)."""
    job_id = str(uuid4())
    await bus.publish(b'{"text": "price \\ud83d ok"}', message_id=job_id)
    assert await bus.completed(job_id)


@pytest.mark.parametrize("prefix", ["cloudEvents_", "cloudEvents:"])
async def test_a_gzipped_binary_cloudevent_is_done(bus, prefix):
    """Attributes in headers, the job in the body."""
    job_id = str(uuid4())
    await bus.publish(
        gzip.compress(b'{"text": "Good."}'),
        content_encoding="gzip",
        headers={f"{prefix}specversion": "1.0", f"{prefix}subject": job_id},
    )
    assert await bus.completed(job_id)


async def test_a_structured_cloudevent_is_done(bus):
    """The job stands under `data`."""
    job_id = str(uuid4())
    await bus.publish(
        {"specversion": "1.0", "subject": job_id, "data": {"text": "Good."}},
        content_type=CLOUDEVENT,
    )
    assert await bus.completed(job_id)


async def test_headers_of_every_kind_do_no_harm(bus):
    """Numbers, tables, bytes and megabytes where text is expected leave the job what it is."""
    job_id = str(uuid4())
    await bus.publish(
        {"text": "Good."},
        message_id=job_id,
        priority=255,
        headers={
            "cloudEvents_specversion": {"nested": [1, None, bytearray(b"\xff")]},
            "cloudEvents_subject": -1,
            "traceparent": bytearray(b"\xff\xfe"),
            "tracestate": "x" * 50_000,
            "x-utterd-attempt": "many",
            "x-death": [{"count": "none"}],
        },
    )
    assert await bus.completed(job_id)


async def test_a_job_for_no_lane_is_kept_with_the_dead(bus):
    """A routing key that fits nothing is no way to lose a job."""
    exchange = await bus.channel.get_exchange(bus.place.broker.exchanges.jobs)
    body = f'{{"text": "{uuid4()}"}}'.encode()
    await exchange.publish(aio_pika.Message(body), "synthesize.nobody")
    assert (await bus.buried(body)).routing_key == "synthesize.nobody"
