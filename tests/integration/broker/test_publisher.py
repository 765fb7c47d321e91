import asyncio
import json
from datetime import UTC, datetime

import pytest

from utterd.broker.message import ATTEMPT_HEADER, Message
from utterd.errors import UnknownVoiceError
from utterd_schemas.events import EventType

pytestmark = pytest.mark.sandbox


async def test_an_event_arrives_as_a_cloudevent(settings, wire, publishing, make_event):
    """Binary mode: attributes in headers, data in the body, and AMQP's own properties filled."""
    queue = await wire.subscribe("synthesis.completed")
    event = make_event(correlation_id="c-1", trace={"traceparent": "00-aa-bb-01"})
    async with publishing(settings) as publisher:
        await publisher.send(event)
    arrived = await wire.next(queue)
    assert arrived.body == event.data
    assert arrived.headers["cloudEvents_id"] == str(event.id)
    assert arrived.headers["cloudEvents_subject"] == "job-1"
    assert arrived.headers["traceparent"] == "00-aa-bb-01"
    assert arrived.message_id == str(event.id)
    assert arrived.type == "io.utterd.synthesis.completed.v1"
    assert arrived.correlation_id == "c-1"
    assert arrived.content_type == "application/json"
    assert arrived.delivery_mode == 2
    assert arrived.timestamp == event.time.replace(microsecond=0)


@pytest.mark.parametrize("kind", list(EventType))
async def test_a_copy_of_terminal_events_goes_to_reply_to(
    settings, wire, publishing, make_event, kind
):
    """Whoever waits for the outcome gets it, and nothing else."""
    replies = await wire.channel.declare_queue(exclusive=True)
    async with publishing(settings) as publisher:
        await publisher.send(make_event(kind, reply_to=replies.name, data=b"1"))
        await publisher.send(make_event(EventType.FAILED, reply_to=replies.name, data=b"2"))
    assert (await wire.next(replies.name)).body == (b"1" if kind.is_terminal else b"2")


async def test_a_reply_queue_that_is_gone_is_no_error(settings, wire, publishing, make_event):
    """The requester has left: the event is sent all the same."""
    queue = await wire.subscribe()
    async with publishing(settings) as publisher:
        await publisher.send(make_event(reply_to="amq.gen-gone"))
    assert (await wire.next(queue)).body == make_event().data


async def test_a_reply_queue_that_is_full_holds_up_nothing(settings, wire, publishing, make_event):
    """A stranger's queue can't keep the daemon's slots busy for ever."""
    full = await wire.channel.declare_queue(
        exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    async with publishing(settings) as publisher:
        for _ in range(3):
            await publisher.send(make_event(reply_to=full.name))
    assert await wire.ready(full.name) == 1


async def test_a_user_who_may_not_write_to_queues_sends_events_without_copies(
    settings, wire, publishing, make_event, restricted_user
):
    """Without the right to the default exchange the copy is given up, the event is not."""
    queue = await wire.subscribe()
    restricted = await restricted_user(settings, "", "^test-", "^test-")
    async with publishing(restricted) as publisher:
        for data in (b"1", b"2"):
            await publisher.send(make_event(reply_to="anyone", data=data))
    assert [(await wire.next(queue)).body for _ in range(2)] == [b"1", b"2"]


async def test_a_dead_job_keeps_what_it_was_and_gets_its_reason(settings, wire, publishing):
    """Body, properties and headers are the publisher's; the reasons stand beside them."""
    message = Message(
        body=b"\x00not json\xff",
        routing_key="synthesize.batch",
        message_id="m-1",
        correlation_id="c-1",
        reply_to="r-1",
        content_type="text/plain",
        content_encoding="gzip",
        timestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        headers={"tenant": "a", "nested": {"list": [1, None, True]}, ATTEMPT_HEADER: 3},
    )
    async with publishing(settings) as publisher:
        await publisher.bury(message, UnknownVoiceError("choose another voice", voices=["a"]))
    dead = await wire.next(settings.queues.dead)
    assert dead.body == message.body
    assert (dead.message_id, dead.correlation_id, dead.reply_to) == ("m-1", "c-1", "r-1")
    assert (dead.content_type, dead.content_encoding) == ("text/plain", "gzip")
    assert dead.timestamp == message.timestamp
    assert dead.headers["tenant"] == "a"
    assert dead.headers["nested"] == {"list": [1, None, True]}
    assert dead.headers["x-utterd-error-code"] == "unknown_voice"
    assert dead.headers["x-utterd-error-message"] == "choose another voice"
    assert dead.headers["x-utterd-attempt"] == 3
    assert dead.headers["x-utterd-routing-key"] == "synthesize.batch"
    assert datetime.fromisoformat(dead.headers["x-utterd-died-at"]).tzinfo is not None


async def test_headers_that_cannot_be_sent_on_are_left_out(through_proxy, proxy, wire, publishing):
    """Neither huge nor unwritable headers break the connection or lose the job."""
    message = Message(
        body=b"1",
        headers={
            "huge": "x" * 200_000,
            "many": ["y" * 1000] * 60,
            "not utf-8": b"\xff\xfe",
            "beyond float32": 1e300,
            "nested": {"not utf-8": [b"\xff"]},
            "kept": "yes",
        },
    )
    async with publishing(through_proxy) as publisher:
        await publisher.bury(message, UnknownVoiceError("choose another voice"))
    dead = await wire.next(through_proxy.queues.dead)
    assert {name for name in dead.headers if not name.startswith("x-")} == {"many", "kept"}
    assert dead.headers["x-utterd-error-code"] == "unknown_voice"
    assert proxy.accepted == 1


async def test_a_body_of_many_frames_is_buried_whole(settings, wire, publishing):
    """A dead job may be larger than a frame."""
    body = json.dumps({"text": "a" * 1_000_000}).encode()
    async with publishing(settings) as publisher:
        await publisher.bury(Message(body=body), UnknownVoiceError("choose another voice"))
    assert (await wire.next(settings.queues.dead)).body == body


async def test_many_at_once_are_each_confirmed(settings, wire, publishing, make_event):
    """Concurrent events share a channel and none is lost."""
    queue = await wire.subscribe()
    bodies = {str(number).encode() for number in range(50)}
    async with publishing(settings) as publisher, asyncio.TaskGroup() as sending:
        for body in bodies:
            sending.create_task(publisher.send(make_event(data=body)))
    assert {(await wire.next(queue)).body for _ in bodies} == bodies
