"""What ends a job before its time."""

import asyncio
import json
from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from utterd.testing.broker import InMemoryBroker, Settlement
from utterd.testing.engine import FixedSpeaker
from utterd.testing.store import InMemoryObjectStore
from utterd_schemas.events import EventType, event_id

SEGMENTS = 2
SOON = timedelta(milliseconds=20)


def job(**fields):
    return json.dumps({"job_id": "mine", "text": "Hello there. How are you?"} | fields).encode()


def data_of(event):
    return json.loads(event.data)


class SlotNotingSpeaker(FixedSpeaker):
    """A speaker that knows how many of its slots are taken."""

    busy = 0

    async def speak(self, utterance, *, pace=None, on_start=None, **others):
        self.busy += 1
        try:
            return await super().speak(utterance, pace=pace, on_start=on_start, **others)
        finally:
            self.busy -= 1


class SlowStore(InMemoryObjectStore):
    """A store that answers a lookup when it is told to."""

    def __init__(self):
        super().__init__()
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def head(self, name):
        self.asked.set()
        await self.answer.wait()
        return await super().head(name)


def begin(line, body):
    """A delivery, and the task that works on it."""
    delivery = line.deliver(body)
    return delivery, asyncio.create_task(line.runner.run(delivery))


async def test_a_job_expires_in_the_middle_of_its_synthesis(open_line):
    """It gets an expired event, leaves no copy among the dead, and frees the engine's slots."""
    speaker = SlotNotingSpeaker()
    speaker.hold()
    async with open_line(speaker=speaker) as line:
        expires_at = line.runner.now() + SOON
        assert await line.run(job(expires_at=expires_at.isoformat())) is Settlement.ACKED
        assert line.outcomes == ["started", "expired"]
        assert line.broker.dead == line.broker.postponed == []
        speaker.release()
        assert await line.run(job(job_id="next")) is Settlement.ACKED
        assert speaker.calls == 2 * SEGMENTS
    assert speaker.busy == 0


async def test_the_amqp_expiration_counts_too(open_line):
    """The earlier one of the two ends the job."""
    async with open_line() as line:
        line.speaker.hold()
        later = (line.runner.now() + timedelta(hours=1)).isoformat()
        properties = {"timestamp": line.runner.now(), "expiration_s": SOON.total_seconds()}
        assert await line.run(job(expires_at=later), **properties) is Settlement.ACKED
        assert line.outcomes == ["started", "expired"]


async def test_a_time_out_that_is_not_the_jobs_expiry_is_a_bug(open_line):
    """Nothing else may pass for it."""

    class HastyStore(InMemoryObjectStore):
        async def head(self, name):
            raise TimeoutError(name)

    async with open_line(objects=HastyStore()) as line:
        expires_at = line.runner.now() + timedelta(hours=1)
        await line.run(job(expires_at=expires_at.isoformat()))
        assert line.outcomes == []
        assert len(line.broker.postponed) == 1


async def test_a_running_job_is_called_off(open_line):
    """Its synthesis stops, and a cancelled event and an ack follow."""
    speaker = SlotNotingSpeaker()
    speaker.hold()
    async with open_line(speaker=speaker) as line:
        delivery, task = begin(line, job(labels={"page": "3"}))
        await speaker.called(SEGMENTS)
        line.interruptions.cancel("mine", line.runner.now())
        await task
        assert delivery.settlement is Settlement.ACKED
        assert line.outcomes == ["started", "cancelled"]
        cancelled = line.broker.events[-1]
        assert cancelled.id == event_id("mine", EventType.CANCELLED)
        assert data_of(cancelled)["labels"] == {"page": "3"}
        assert line.broker.dead == line.broker.postponed == []
    assert speaker.busy == 0
    assert line.objects.names == set()


async def test_a_job_that_was_called_off_before_it_came_is_not_begun(open_line):
    """No lookup, no synthesis; sent again after the cancel, it is done."""
    async with open_line() as line:
        now = line.runner.now()
        line.interruptions.cancel("mine", now)
        before = now - timedelta(seconds=5)
        assert await line.run(job(), timestamp=before) is Settlement.ACKED
        assert line.outcomes == ["cancelled"]
        assert line.speaker.calls == 0
        await line.run(job(), timestamp=now + timedelta(seconds=5))
        assert line.outcomes == ["cancelled", "started", "completed"]


async def test_others_keep_the_audio_of_a_job_that_is_called_off(open_line):
    """They get it, and nothing more is said about the job that was called off."""
    async with open_line(tells_progress=True) as line:
        line.speaker.hold()
        _, first = begin(line, job())
        _, second = begin(line, job(job_id="other"))
        await line.speaker.called(SEGMENTS)
        line.interruptions.cancel("mine", line.runner.now())
        await first
        line.speaker.release()
        await second
        assert [(event.subject, event.type.outcome) for event in line.broker.events] == [
            ("mine", "started"),
            ("mine", "cancelled"),
            ("other", "completed"),
        ]
        assert line.speaker.calls == SEGMENTS


async def test_what_has_not_begun_goes_back(open_line):
    """A stop or a pause releases it without a word, and nobody has to wait for the store."""
    async with open_line(objects=SlowStore()) as line:
        delivery, task = begin(line, job())
        await line.objects.asked.wait()
        assert line.interruptions.hand_back() == 1
        await task
        assert delivery.settlement is Settlement.RELEASED
        assert line.broker.events == line.broker.dead == line.broker.postponed == []


async def test_what_has_begun_is_finished(open_line):
    """Speech that is under way is worth its completion."""
    async with open_line() as line:
        line.speaker.hold()
        delivery, task = begin(line, job())
        await line.speaker.called(1)
        assert line.interruptions.hand_back() == 0
        line.speaker.release()
        await task
        assert delivery.settlement is Settlement.ACKED
        assert line.outcomes == ["started", "completed"]


async def test_a_cancel_that_comes_with_the_settlement_is_too_late(open_line):
    """The completed event stands, and no other follows."""
    broker = InMemoryBroker()
    async with open_line(broker=broker) as line:
        line.speaker.hold()
        delivery, task = begin(line, job())
        await line.speaker.called(SEGMENTS)
        broker.hold_confirms()
        line.speaker.release()
        await broker.unconfirmed()
        line.interruptions.cancel("mine", line.runner.now())
        line.interruptions.hand_back()
        broker.confirm()
        await task
        assert delivery.settlement is Settlement.ACKED
        assert line.outcomes == ["started", "completed"]


async def test_the_daemons_own_end_settles_nothing(open_line):
    """The broker delivers again when the connection closes."""
    async with open_line() as line:
        line.speaker.hold()
        delivery, task = begin(line, job())
        await line.speaker.called(SEGMENTS)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert delivery.settlement is None
        assert line.outcomes == ["started"]


async def test_an_end_that_comes_with_an_interruption_is_an_end(open_line):
    """A daemon that is out of time does not begin to settle."""
    async with open_line() as line:
        line.speaker.hold()
        delivery, task = begin(line, job())
        await line.speaker.called(SEGMENTS)
        line.interruptions.cancel("mine", line.runner.now())
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert delivery.settlement is None


async def test_a_cancellation_from_nowhere_costs_an_attempt_and_no_slot(open_line):
    """A library that cancels what the job waits for leaves no delivery unsettled."""

    class CancellingStore(InMemoryObjectStore):
        async def head(self, name):
            raise asyncio.CancelledError(name)

    async with open_line(objects=CancellingStore()) as line:
        assert await line.run(job()) is Settlement.ACKED
        assert len(line.broker.postponed) == 1


class InterruptingBroker(InMemoryBroker):
    """Calls a function at a certain one of the calls that a line makes."""

    def __init__(self, at_call, interrupt):
        super().__init__()
        self._left = at_call
        self._interrupt = interrupt

    def tick(self):
        self._left -= 1
        if self._left == 0:
            self._interrupt()

    async def send(self, event):
        self.tick()
        await super().send(event)
        self.tick()


class TickingStore(InMemoryObjectStore):
    tick = None

    async def head(self, name):
        self.tick()
        await asyncio.sleep(0)
        return await super().head(name)

    async def put(self, *args, **kwargs):
        self.tick()
        result = await super().put(*args, **kwargs)
        self.tick()
        return result

    async def presign(self, name, expires_s):
        self.tick()
        await asyncio.sleep(0)
        self.tick()
        return f"https://{name}?{expires_s}"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    kind=st.sampled_from(["cancel", "hand back", "both"]),
    at_call=st.integers(1, 14),
    turns=st.integers(0, 3),
)
def test_an_interruption_at_any_point_leaves_one_settlement(open_line, kind, at_call, turns):
    """One settlement, at most one terminal event, and no event of a job that went back."""

    async def play():
        async def interrupt_in_a_while():
            for _ in range(turns):
                await asyncio.sleep(0)
            if kind in ("cancel", "both"):
                line.interruptions.cancel("mine", line.runner.now())
            if kind in ("hand back", "both"):
                line.interruptions.hand_back()

        objects = TickingStore()
        async with asyncio.TaskGroup() as later:
            broker = InterruptingBroker(
                at_call, lambda: later.create_task(interrupt_in_a_while(), name="interrupt")
            )
            objects.tick = broker.tick
            async with open_line(broker=broker, objects=objects, presign_expires_s=60) as line:
                settlement = await line.run(job())
        ends = [outcome for outcome in line.outcomes if outcome not in ("started", "progress")]
        if settlement is Settlement.RELEASED:
            assert kind == "hand back"
            assert ends == []
        else:
            assert settlement is Settlement.ACKED
            assert ends in (["completed"], ["cancelled"])
        assert broker.dead == broker.postponed == []

    asyncio.run(play())
