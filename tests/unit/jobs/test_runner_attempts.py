"""What becomes of a job whose attempt failed."""

import asyncio
import json

from utterd.broker.message import ATTEMPT_HEADER, WORKER_DEATHS_HEADER, History
from utterd.config import Lane
from utterd.errors import EngineFailedError, WorkerDiedError
from utterd.testing.broker import Settlement
from utterd.testing.engine import FixedSpeaker

LAST_ATTEMPT = {ATTEMPT_HEADER: 3}
"""The number of the first attempt and of those after each of the line's two delays."""


def job(**fields):
    return json.dumps({"job_id": "mine", "text": "Hello there. How are you?"} | fields).encode()


def data_of(event):
    return json.loads(event.data)


async def test_an_engines_failure_postpones_the_job(open_line):
    """It comes back by its lane, later each time, and nobody is told of a failure yet."""
    async with open_line(speaker=FixedSpeaker(EngineFailedError("out of breath"))) as line:
        for attempt, delay_s in ((1, 10), (2, 60)):
            assert (
                await line.run(job(), Lane.BATCH, headers={ATTEMPT_HEADER: attempt})
                is Settlement.ACKED
            )
            postponed = line.broker.postponed[-1]
            assert (postponed.lane, postponed.delay_s) == (Lane.BATCH, delay_s)
            assert postponed.history == History(attempt=attempt + 1, worker_deaths=0)
            assert postponed.message.body == job()
        assert line.outcomes == ["started", "started"]
        assert [data_of(event)["attempt"] for event in line.broker.events] == [1, 2]
        assert len({event.id for event in line.broker.events}) == 2
        assert line.broker.dead == []


async def test_a_job_whose_attempts_are_used_up_fails(open_line):
    """The event says that the same job may succeed when sent again, and a copy is kept."""
    async with open_line(speaker=FixedSpeaker(EngineFailedError("out of breath"))) as line:
        assert await line.run(job(), headers=LAST_ATTEMPT) is Settlement.ACKED
        assert line.outcomes == ["started", "failed"]
        failed = data_of(line.broker.events[-1])
        assert (failed["error"]["retryable"], failed["attempts"]) == (True, 3)
        assert line.broker.dead[0].error.code == "engine_failed"
        assert line.broker.postponed == []


async def test_a_job_that_kills_workers_twice_is_dead(open_line):
    """It gets no third try, whatever attempts it has left; one death alone may be chance."""
    async with open_line(speaker=FixedSpeaker(WorkerDiedError("killed"))) as line:
        await line.run(job())
        (postponed,) = line.broker.postponed
        assert postponed.history == History(attempt=2, worker_deaths=1)
        headers = {ATTEMPT_HEADER: 2, WORKER_DEATHS_HEADER: 1}
        assert await line.run(job(), headers=headers) is Settlement.ACKED
        assert line.outcomes[-1] == "failed"
        assert line.broker.dead[0].error.code == "worker_died"
        assert len(line.broker.postponed) == 1


async def test_a_job_that_takes_too_long_is_tried_again(open_line):
    """The limit is the settings' own; the last attempt's failure names it."""
    async with open_line(job_timeout_s=0.01) as line:
        line.speaker.hold()
        assert await line.run(job()) is Settlement.ACKED
        assert len(line.broker.postponed) == 1
        assert await line.run(job(), headers=LAST_ATTEMPT) is Settlement.ACKED
        assert data_of(line.broker.events[-1])["error"]["code"] == "deadline_exceeded"


class FullSpeaker(FixedSpeaker):
    """A speaker without a free slot."""

    async def speak(self, utterance, *, pace=None, on_start=None, **others):
        await asyncio.Event().wait()
        return await super().speak(utterance, pace=pace, on_start=on_start, **others)


async def test_a_job_that_finds_no_slot_is_given_back(open_line):
    """Before the broker takes it away; a long line costs no attempt."""
    async with open_line(speaker=FullSpeaker(), work_timeout_s=0.01) as line:
        assert await line.run(job()) is Settlement.RELEASED
        assert line.broker.postponed == []
        assert "failed" not in line.outcomes


async def test_a_job_that_was_begun_does_not_outlast_the_broker(open_line):
    """Whatever its slots have left, the attempt ends while it can still be settled."""
    async with open_line(work_timeout_s=0.01) as line:
        line.speaker.hold()
        assert await line.run(job(), headers=LAST_ATTEMPT) is Settlement.ACKED
        failed = data_of(line.broker.events[-1])
        assert failed["error"]["code"] == "deadline_exceeded"
        assert "consumer_timeout_s" in failed["error"]["message"]


class CompanyNotingSpeaker(FixedSpeaker):
    """A speaker that remembers who had to be alone."""

    def __init__(self):
        super().__init__()
        self.alone = []

    async def speak(self, utterance, *, pace=None, alone=False, on_start=None):
        self.alone.append(alone)
        return await super().speak(utterance, pace=pace, on_start=on_start)


async def test_a_job_whose_worker_died_is_next_spoken_alone(open_line):
    """So it shows whether it was this one that killed it, and no neighbour dies with it."""
    speaker = CompanyNotingSpeaker()
    async with open_line(speaker=speaker) as line:
        await line.run(job())
        again = {ATTEMPT_HEADER: 2, WORKER_DEATHS_HEADER: 1}
        await line.run(job(job_id="other", text="Once more."), headers=again)
        assert speaker.alone == [False, False, True]
