"""A delivery's way from end to end, with stand-ins for broker, engine and store."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from utterd.broker.message import ATTEMPT_HEADER
from utterd.config import Lane
from utterd.errors import EngineFailedError
from utterd.testing.broker import InMemoryBroker, Settlement
from utterd.testing.engine import FixedSpeaker
from utterd.testing.store import InMemoryObjectStore
from utterd_schemas.events import EventType, event_id

MARKER = "zebra-quartz"
TEXT = f"Hello {MARKER}. How are you?"


def job(**fields):
    return json.dumps({"job_id": "mine", "text": TEXT} | fields).encode()


def data_of(event):
    return json.loads(event.data)


LAST_ATTEMPT = {ATTEMPT_HEADER: 3}
"""The number of the first attempt and of those after each of the line's two delays."""


class LinkingStore(InMemoryObjectStore):
    async def presign(self, name, expires_s):
        return f"https://{name}?{expires_s}"


class BrokenStore(InMemoryObjectStore):
    async def head(self, name):
        raise ZeroDivisionError(f"{MARKER} {name}")


async def test_a_good_job_is_made_stored_announced_and_acked(open_line):
    """The audio stands under the key before the event tells of it."""
    async with open_line() as line:
        assert await line.run(job(labels={"page": "3"})) is Settlement.ACKED
        assert line.outcomes == ["started", "completed"]
        started, completed = map(data_of, line.broker.events)
        assert (started["segments"], started["attempt"]) == (2, 1)
        assert (completed["labels"], completed["cached"]) == ({"page": "3"}, False)
        assert line.objects.names == {completed["object_name"]}
        assert len(await line.objects.get(completed["object_name"])) == completed["bytes"]


async def test_a_second_job_of_the_same_key_is_only_a_lookup(open_line):
    """It is told so, and nothing is synthesised or announced as begun."""
    async with open_line() as line:
        await line.run(job())
        calls = line.speaker.calls
        await line.run(job(job_id="other"))
        assert line.speaker.calls == calls
        assert line.outcomes == ["started", "completed", "completed"]
        first, second = (data_of(event) for event in line.broker.events[1:])
        assert (first["cached"], second["cached"]) == (False, True)
        assert first["sha256"] == second["sha256"]


async def test_a_redelivery_repeats_the_event(open_line):
    """Same id, same facts, no second synthesis, and no claim that it was cached."""
    async with open_line() as line:
        await line.run(job())
        await line.run(job())
        _, first, second = line.broker.events
        assert first.id == second.id == event_id("mine", EventType.COMPLETED)
        assert data_of(second)["cached"] is False
        assert line.speaker.calls == 2


async def test_two_equal_jobs_at_once_share_one_synthesis(open_line):
    """Each gets an event of its own."""
    async with open_line() as line:
        line.speaker.hold()
        async with asyncio.TaskGroup() as jobs:
            for name in ("one", "two"):
                jobs.create_task(line.run(job(job_id=name)))
            await line.speaker.called(2)
            line.speaker.release()
        assert line.speaker.calls == 2
        completed = [data_of(e) for e in line.broker.events if e.type is EventType.COMPLETED]
        assert {data["job_id"]: data["cached"] for data in completed} == {"one": False, "two": True}


async def test_a_job_with_marks_shares_the_audio_of_one_without(open_line):
    """Its marks are made, and the audio that stands is kept."""
    async with open_line() as line:
        await line.run(job())
        await line.run(job(job_id="other", marks=["sentence"]))
        completed = data_of(line.broker.events[-1])
        assert line.objects.names == {completed["object_name"], completed["marks"]["key"]}
        assert completed["cached"] is True


async def test_a_job_with_marks_beside_one_without_has_them_made(open_line):
    """The two share an object, so one waits for the other instead of racing it."""
    async with open_line() as line:
        line.speaker.hold()
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(line.run(job()))
            await line.speaker.called(2)
            jobs.create_task(line.run(job(job_id="other", marks=["sentence"])))
            line.speaker.release()
        completed = data_of(line.broker.events[-1])
        assert completed["job_id"] == "other"
        assert line.objects.names == {completed["object_name"], completed["marks"]["key"]}


async def test_a_store_that_drops_metadata_costs_no_endless_work(open_line):
    """Audio that was made for the job itself is not looked for again."""

    class ForgetfulStore(InMemoryObjectStore):
        async def head(self, name):
            stored = await super().head(name)
            return stored and replace(stored, metadata={})

    async with open_line(objects=ForgetfulStore()) as line, asyncio.timeout(10):
        assert await line.run(job(marks=["sentence"])) is Settlement.ACKED
        assert line.outcomes == ["started", "completed"]
        assert line.speaker.calls == 2


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"speed": 0}, "invalid_field"),
        ({"voise": "a"}, "unknown_field"),
        ({"voice": "no/body"}, "unknown_voice"),
        ({"language": "fr"}, "unsupported_language"),
        ({"format": "opus", "sample_rate_hz": 22_050}, "unsupported_output"),
        ({"marks": ["word"]}, "unsupported_marks"),
        ({"text": " \u3000 "}, "empty_text"),
        ({"text": "a" * 1001}, "text_too_long"),
        ({"text": "a" * 200_000}, "message_too_large"),
    ],
)
async def test_a_job_that_is_wrong_fails_for_good(open_line, fields, code):
    """A failed event, a copy among the dead with the same reason, one ack; then life goes on."""
    async with open_line() as line:
        assert await line.run(job(**fields), message_id="mine") is Settlement.ACKED
        (event,) = line.broker.events
        (dead,) = line.broker.dead
        error = data_of(event)["error"]
        assert (event.subject, error["code"], error["retryable"]) == ("mine", code, False)
        assert dead.error.code == code
        assert line.speaker.calls == 0
        assert await line.run(job(job_id="next")) is Settlement.ACKED
        assert line.outcomes[-1] == "completed"


async def test_a_message_without_any_id_is_buried_without_an_event(open_line):
    """There is nobody to tell, but the reason is kept with the copy."""
    async with open_line() as line:
        assert await line.run(b'{"text": "hi"') is Settlement.ACKED
        assert line.broker.events == []
        assert line.broker.dead[0].error.code == "invalid_json"


@pytest.mark.parametrize("late_s", [0, 5])
async def test_an_expired_job_is_not_begun(open_line, late_s):
    """It gets an expired event and leaves no copy among the dead."""
    async with open_line() as line:
        expires_at = line.runner.now() - timedelta(seconds=late_s)
        assert await line.run(job(expires_at=expires_at.isoformat())) is Settlement.ACKED
        assert line.outcomes == ["expired"]
        assert line.broker.dead == []
        assert line.speaker.calls == 0


async def test_a_job_that_was_completed_does_not_expire(open_line):
    """Its ack was lost, and its time ran out before it came again: its event is repeated."""
    async with open_line() as line:
        expires_at = line.runner.now() + timedelta(seconds=5)
        body = job(expires_at=expires_at.isoformat())
        await line.run(body)
        line.clock.now = expires_at + timedelta(seconds=1)
        assert await line.run(body) is Settlement.ACKED
        assert line.outcomes == ["started", "completed", "completed"]
        assert line.broker.events[-1].id == line.broker.events[-2].id


async def test_anothers_audio_does_not_complete_an_expired_job(open_line):
    """It waited too long, and nobody has worked on it."""
    async with open_line() as line:
        await line.run(job(job_id="other"))
        late = line.runner.now() - timedelta(seconds=1)
        await line.run(job(expires_at=late.isoformat()))
        assert line.outcomes == ["started", "completed", "expired"]


async def test_a_job_that_was_completed_is_not_called_off(open_line):
    """The order came between a lost ack and the second delivery."""
    async with open_line() as line:
        await line.run(job())
        line.interruptions.cancel("mine", line.runner.now())
        assert await line.run(job()) is Settlement.ACKED
        assert line.outcomes == ["started", "completed", "completed"]


async def test_a_job_that_is_in_time_is_done(open_line):
    """An expiry ahead is no reason to refuse."""
    async with open_line() as line:
        expires_at = line.runner.now() + timedelta(seconds=5)
        await line.run(job(expires_at=expires_at.isoformat()))
        assert line.outcomes == ["started", "completed"]


@pytest.mark.parametrize(
    ("body", "answers", "sent"),
    [
        (job(), [], ["started", "completed"]),
        (job(speed=0), [], ["failed", "buried"]),
        (job(), [EngineFailedError("no")], ["started", "postponed"]),
        (job(expires_at="2000-01-01T00:00:00Z"), [], ["expired"]),
    ],
    ids=["completed", "failed", "postponed", "expired"],
)
async def test_nothing_is_acked_before_all_is_confirmed(open_line, body, answers, sent):
    """While the broker is silent about an event or a copy, the job stays the broker's."""

    class SilentBroker(InMemoryBroker):
        def __init__(self):
            super().__init__()
            self.asked = asyncio.Queue()
            self.answer = asyncio.Queue()

        async def send(self, event):
            await self.asked.put(event.type.outcome)
            await self.answer.get()

        async def bury(self, _message, _error):
            await self.asked.put("buried")
            await self.answer.get()

        async def postpone(self, _message, _lane, _history, *, delay_s):
            assert delay_s == 10
            await self.asked.put("postponed")
            await self.answer.get()

    broker = SilentBroker()
    speaker = FixedSpeaker(*answers)
    async with open_line(broker=broker, speaker=speaker) as line, asyncio.TaskGroup() as group:
        delivery = line.deliver(body)
        group.create_task(line.runner.run(delivery))
        for expected in sent:
            assert await broker.asked.get() == expected
            assert delivery.settlement is None
            await broker.answer.put("confirmed")
        assert await delivery.settled() is Settlement.ACKED


async def test_links_are_made_on_demand_only(open_line):
    """An event carries one where the settings give it a lifetime."""
    async with open_line(objects=LinkingStore(), presign_expires_s=60) as line:
        await line.run(job())
        assert data_of(line.broker.events[-1])["presigned_url"].endswith(".wav?60")
    async with open_line() as line:
        await line.run(job())
        assert data_of(line.broker.events[-1])["presigned_url"] is None


async def test_a_bug_is_an_internal_error(open_line):
    """The job is tried again, and its last event names the fault's kind and nothing of the job."""
    async with open_line(objects=BrokenStore()) as line:
        assert await line.run(job()) is Settlement.ACKED
        assert len(line.broker.postponed) == 1
        assert await line.run(job(), headers=LAST_ATTEMPT) is Settlement.ACKED
        error = data_of(line.broker.events[-1])["error"]
        assert (error["code"], error["retryable"]) == ("internal_error", True)
        assert "ZeroDivisionError" in error["message"]
        assert MARKER not in error["message"]
        assert line.broker.dead[0].error.code == "internal_error"


async def test_a_bug_in_decoding_is_an_internal_error_too(open_line):
    """The message's id tells whose it is."""

    def broken_clock():
        raise ZeroDivisionError

    async with open_line(now=broken_clock) as line:
        assert await line.run(job(), message_id="m") is Settlement.ACKED
        (event,) = line.broker.events
        assert (event.subject, data_of(event)["error"]["code"]) == ("m", "internal_error")


async def test_a_bug_in_announcing_rejects_the_delivery(open_line):
    """Where nothing can be told any more, the broker's own dead-lettering keeps the job."""

    class BrokenBroker(InMemoryBroker):
        async def send(self, event):
            raise ZeroDivisionError(event.subject)

    async with open_line(broker=BrokenBroker()) as line:
        assert await line.run(job(speed=0)) is Settlement.REJECTED


@pytest.mark.parametrize("lane", list(Lane))
async def test_the_interactive_lane_is_urgent(open_line, lane):
    """Its segments go before those of the batch lane."""

    class NotingSpeaker(FixedSpeaker):
        urgent = frozenset()

        async def speak(self, utterance, *, pace=None, on_start=None, **others):
            self.urgent |= {pace.is_urgent}
            return await super().speak(utterance, pace=pace, on_start=on_start, **others)

    speaker = NotingSpeaker()
    async with open_line(speaker=speaker) as line:
        await line.runner.run(line.deliver(job(), lane))
    assert speaker.urgent == {lane is Lane.INTERACTIVE}


@pytest.mark.parametrize("body", [job(), job(text="..."), b"{"], ids=["good", "bad", "broken"])
async def test_who_has_lost_a_job_that_may_lapse_does_not_tell_of_it(open_line, body):
    """Its time may have run out in the lane, and then it has expired for everybody."""
    async with open_line() as line:
        lost = line.deliver(body, message_id="mine", expiration_s=5.0)
        lost.is_lost = True
        await line.runner.run(lost)
        assert set(line.outcomes) <= {"started"}
        assert (lost.settlement, line.broker.dead, line.broker.postponed) == (None, [], [])
        await line.run(body, message_id="mine", expiration_s=5.0)
        assert len(set(line.outcomes) - {"started"}) == 1


async def test_who_has_lost_any_other_job_tells_of_it(open_line):
    """Its lane may be gone, and nobody else would."""
    async with open_line() as line:
        lost = line.deliver(job())
        lost.is_lost = True
        await line.runner.run(lost)
        assert line.outcomes == ["started", "completed"]


async def test_an_interactive_job_hurries_the_batch_job_that_it_equals(open_line):
    """They share one synthesis, and somebody waits for it now."""

    class NotingSpeaker(FixedSpeaker):
        pace = None

        async def speak(self, utterance, *, pace=None, on_start=None, **others):
            self.pace = pace
            return await super().speak(utterance, pace=pace, on_start=on_start, **others)

    speaker = NotingSpeaker()
    async with open_line(speaker=speaker) as line, asyncio.TaskGroup() as running:
        speaker.hold()
        running.create_task(line.run(job(job_id="patient"), Lane.BATCH))
        await speaker.called()
        assert not speaker.pace.is_urgent
        running.create_task(line.run(job(job_id="hurried"), Lane.INTERACTIVE))
        async with asyncio.timeout(5):
            while not speaker.pace.is_urgent:  # noqa: ASYNC110 - it is somebody else's state
                await asyncio.sleep(0)
        speaker.release()
    assert line.outcomes.count("completed") == 2
    assert line.outcomes.count("started") == 1


async def test_progress_is_announced_where_the_settings_say_so(open_line):
    """One event a segment, each with an id of its own."""
    async with open_line(tells_progress=True) as line:
        await line.run(job())
        assert line.outcomes == ["started", "progress", "progress", "completed"]
        assert [data_of(event)["segments_done"] for event in line.broker.events[1:3]] == [1, 2]
        assert len({event.id for event in line.broker.events}) == 4


async def test_the_senders_wishes_reach_every_event(open_line):
    """Correlation, reply queue and trace context come along."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    properties = {"correlation_id": "c", "reply_to": "q", "headers": {"traceparent": parent}}
    async with open_line() as line:
        await line.run(job(), **properties)
        assert {event.correlation_id for event in line.broker.events} == {"c"}
        assert all(event.trace == {"traceparent": parent} for event in line.broker.events)
        assert [(queue, event.type.outcome) for queue, event in line.broker.replies] == [
            ("q", "completed")
        ]


@pytest.mark.parametrize(
    "fields", [{}, {"speed": 0}, {MARKER: 1}, {"voice": MARKER}, {"labels": {"a": MARKER}}], ids=str
)
@pytest.mark.parametrize("objects", [InMemoryObjectStore(), BrokenStore()], ids=["well", "broken"])
async def test_no_log_line_holds_what_the_publisher_wrote(open_line, fields, objects):
    """Each ended job has one line with its id and outcome, and the text is in none."""
    with structlog.testing.capture_logs() as lines:
        async with open_line(objects=objects) as line:
            await line.run(job(**fields))
    ends = ("job_completed", "job_failed", "job_postponed")
    assert sum(line["event"] in ends for line in lines) == 1
    assert MARKER not in repr([{**line, "exc_info": None} for line in lines])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    body=st.binary()
    | st.fixed_dictionaries(
        {"text": st.text(max_size=20)},
        optional={
            "voice": st.sampled_from(["tone/low", "bright", "no/body"]),
            "speed": st.sampled_from([0, 0.5, 1, "fast"]),
            "job_id": st.sampled_from(["mine", "", None]),
            "marks": st.sampled_from([["sentence"], ["word"], ["sentence"] * 2]),
            "expires_at": st.sampled_from(["2000-01-01T00:00:00Z", "2040-01-01T00:00:00Z", "?"]),
        },
    ).map(lambda fields: json.dumps(fields).encode()),
    broken=st.sampled_from([None, "store", "speaker"]),
    message_id=st.sampled_from([None, "m"]),
    attempt=st.integers(1, 4),
)
def test_whatever_comes_is_settled_once(open_line, body, broken, message_id, attempt):
    """A second settlement would raise; each job ends once, or waits for another attempt."""

    async def play():
        objects = BrokenStore() if broken == "store" else InMemoryObjectStore()
        answers = [EngineFailedError("no")] if broken == "speaker" else []
        async with open_line(objects=objects, speaker=FixedSpeaker(*answers)) as line:
            headers = {ATTEMPT_HEADER: attempt}
            settlement = await line.run(body, message_id=message_id, headers=headers)
            assert settlement is Settlement.ACKED
            ends = sum(event.type.is_terminal for event in line.broker.events)
            nobody_to_tell = len(line.broker.dead) == 1 and not line.outcomes
            assert ends + len(line.broker.postponed) + nobody_to_tell == 1
            assert len(line.broker.dead) == ("failed" in line.outcomes or nobody_to_tell)

    asyncio.run(play())
