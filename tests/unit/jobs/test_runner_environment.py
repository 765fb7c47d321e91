"""What becomes of jobs while the store does not work."""

import asyncio
import json

import pytest

from utterd.broker.message import ATTEMPT_HEADER
from utterd.errors import StoreUnavailableError
from utterd.store.reporting import ENVIRONMENT_PART as STORE_PART
from utterd.testing.broker import Settlement
from utterd.testing.store import InMemoryObjectStore

SEGMENTS = 2


def job(**fields):
    return json.dumps({"job_id": "mine", "text": "Hello there. How are you?"} | fields).encode()


def data_of(event):
    return json.loads(event.data)


class StoreInTrouble(InMemoryObjectStore):
    """A store that refuses one kind of call until it is repaired."""

    def __init__(self, broken_call):
        super().__init__()
        self.broken_call = broken_call

    def _maybe_fail(self, call):
        if call == self.broken_call:
            raise StoreUnavailableError("the store is down: start it")

    async def head(self, name):
        self._maybe_fail("head")
        return await super().head(name)

    async def put(self, *args, **kwargs):
        self._maybe_fail("put")
        return await super().put(*args, **kwargs)

    async def presign(self, name, expires_s):
        self._maybe_fail("presign")
        return f"https://{name}?{expires_s}"

    def repair(self):
        self.broken_call = None


@pytest.mark.parametrize("call", ["head", "put", "presign"])
async def test_a_store_that_is_down_burns_nothing(open_line, call):
    """The job goes back as it came, and the daemon is told to take no more."""
    objects = StoreInTrouble(call)
    async with open_line(objects=objects, presign_expires_s=60) as line:
        assert await line.run(job(), headers={ATTEMPT_HEADER: 3}) is Settlement.RELEASED
        assert line.environment.faults == {STORE_PART: "the store is down: start it"}
        assert line.environment.troubled.is_set()
        assert set(line.outcomes) <= {"started"}
        assert line.broker.dead == line.broker.postponed == []


async def test_nothing_is_begun_without_a_lookup(open_line):
    """A store that can't be asked costs no synthesis and no event."""
    async with open_line(objects=StoreInTrouble("head")) as line:
        await line.run(job())
        assert line.speaker.calls == 0
        assert line.broker.events == []


async def test_finished_audio_waits_for_the_store(open_line):
    """After the recovery the job finds its own audio, and nothing is spoken again."""
    objects = StoreInTrouble("put")
    async with open_line(objects=objects) as line:
        assert await line.run(job()) is Settlement.RELEASED
        assert len(await line.spool.waiting()) == 1
        objects.repair()
        await line.spool.flush(objects)
        assert await line.run(job()) is Settlement.ACKED
        assert line.outcomes == ["started", "completed"]
        completed = data_of(line.broker.events[-1])
        assert (completed["cached"], completed["attempts"]) == (False, 1)
        assert len(await objects.get(completed["object_name"])) == completed["bytes"]
        assert line.speaker.calls == SEGMENTS


async def test_marks_wait_with_their_audio(open_line):
    """Both are uploaded, and the job that wanted them is a lookup."""
    objects = StoreInTrouble("put")
    async with open_line(objects=objects) as line:
        await line.run(job(marks=["sentence"]))
        objects.repair()
        assert await line.spool.flush(objects) == 2
        await line.run(job(marks=["sentence"]))
        completed = data_of(line.broker.events[-1])
        assert objects.names == {completed["object_name"], completed["marks"]["key"]}
        assert line.speaker.calls == SEGMENTS


async def test_without_room_in_the_spool_the_job_is_spoken_again(open_line):
    """Work is lost then, and never the job."""
    objects = StoreInTrouble("put")
    async with open_line(objects=objects, spool_max_bytes=0) as line:
        assert await line.run(job()) is Settlement.RELEASED
        objects.repair()
        assert await line.run(job()) is Settlement.ACKED
        assert line.outcomes == ["started", "started", "completed"]
        assert line.speaker.calls == 2 * SEGMENTS


async def test_all_who_wait_for_the_same_audio_go_back(open_line):
    """It is kept once, and each is told of its completion when it comes again."""
    objects = StoreInTrouble("put")
    async with open_line(objects=objects) as line:
        line.speaker.hold()
        async with asyncio.TaskGroup() as jobs:
            running = [jobs.create_task(line.run(job(job_id=name))) for name in ("one", "two")]
            await line.speaker.called(SEGMENTS)
            line.speaker.release()
        assert [each.result() for each in running] == [Settlement.RELEASED] * 2
        assert len(await line.spool.waiting()) == 1
        objects.repair()
        await line.spool.flush(objects)
        for name in ("one", "two"):
            await line.run(job(job_id=name))
        first, second = map(data_of, line.broker.events[-2:])
        assert (first["cached"], second["cached"]) == (False, True)


async def test_a_recovery_is_not_the_jobs_to_tell(open_line):
    """One call that went well does not end the pause: the probe looks at more."""
    async with open_line() as line:
        line.environment.report(STORE_PART, "down")
        await line.run(job())
        assert line.environment.faults == {STORE_PART: "down"}
