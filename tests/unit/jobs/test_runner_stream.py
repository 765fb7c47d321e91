"""Jobs that want each segment as soon as it is spoken."""

import io
import json

import numpy as np
import pytest
import soundfile

from utterd.errors import StoreUnavailableError
from utterd.testing.broker import InMemoryBroker, Settlement
from utterd.testing.engine import FixedSpeaker, tone
from utterd.testing.store import InMemoryObjectStore

SILENCE = np.zeros(24_000, np.float32)


def job(**fields: object) -> bytes:
    text = "Hello there. How are you? I am well."
    return json.dumps({"job_id": "j", "text": text, "stream": True} | fields).encode()


def data_of(event) -> dict:
    return json.loads(event.data)


def progress_of(broker: InMemoryBroker) -> list[dict]:
    return [data_of(event) for event in broker.events if event.type.outcome == "progress"]


async def test_each_segment_is_stored_before_its_event(open_line):
    """An event tells of an object that stands, and the whole comes last."""
    async with open_line() as line:
        assert await line.run(job()) is Settlement.ACKED
        assert line.outcomes == ["started", "progress", "progress", "progress", "completed"]
        whole = data_of(line.broker.events[-1])
        for number, data in enumerate(progress_of(line.broker), start=1):
            segment = data["segment"]
            assert segment["number"] == number
            assert segment["object_name"] == whole["object_name"].replace(".wav", f".{number}.wav")
            audio = await line.objects.get(segment["object_name"])
            assert len(audio) == segment["bytes"]
            samples, rate = soundfile.read(io.BytesIO(audio))
            assert (len(samples), rate) == (segment["frames"], segment["sample_rate_hz"])
            assert segment["quality"] == {"verdict": "ok", "reasons": []}


async def test_the_whole_is_the_same_without_the_parts(open_line):
    """`stream` is no part of the key, and the final object is the join of all clips."""
    async with open_line() as streamed, open_line() as plain:
        await streamed.run(job())
        await plain.run(job(stream=False))
        first, second = (data_of(line.broker.events[-1]) for line in (streamed, plain))
        assert first["object_name"] == second["object_name"]
        assert first["sha256"] == second["sha256"]
        assert progress_of(plain.broker) == []


async def test_stored_audio_needs_no_parts(open_line):
    """A job whose audio is there gets it at once."""
    async with open_line() as line:
        await line.run(job(stream=False))
        await line.run(job(job_id="second"))
        assert line.outcomes == ["started", "completed", "completed"]
        assert line.speaker.calls == 3


async def test_a_second_attempt_repeats_the_events(open_line):
    """A segment has the same object and the same event id at each attempt."""
    objects = InMemoryObjectStore()
    ids, names = [], []
    for _ in range(2):
        async with open_line(objects=objects) as line:
            await line.run(job())
            whole = data_of(line.broker.events[-1])
            await objects.delete(whole["object_name"])
            ids.append({event.id for event in line.broker.events})
            names.append([data["segment"]["object_name"] for data in progress_of(line.broker)])
    assert ids[0] == ids[1]
    assert names[0] == names[1]


async def test_a_segment_without_sound_has_no_object(open_line):
    """The others can be heard, so the job goes on, and its verdict tells of the silence."""
    speaker = FixedSpeaker(tone(2.0), SILENCE, SILENCE, tone(2.0))
    async with open_line(speaker=speaker) as line:
        assert await line.run(job(text="Hello there. How are you?")) is Settlement.ACKED
        segments = [data["segment"] for data in progress_of(line.broker)]
        assert any(segment is None for segment in segments)
        assert any(segment is not None for segment in segments)
        assert "silent" in data_of(line.broker.events[-1])["quality"]["reasons"]


class _BrokenForParts(InMemoryObjectStore):
    """A store that takes whole recordings only."""

    async def put(self, name: str, data: bytes, **facts: object):
        if name.count(".") > 1:
            raise StoreUnavailableError("the disk is full: free some")
        return await super().put(name, data, **facts)


async def test_a_part_that_can_not_be_stored_costs_the_job_nothing(open_line):
    """Subscribers wait for the whole, and the daemon takes no more jobs until the store works."""
    async with open_line(objects=_BrokenForParts()) as line:
        assert await line.run(job()) is Settlement.ACKED
        assert [data["segment"] for data in progress_of(line.broker)] == [None] * 3
        assert line.outcomes[-1] == "completed"
        assert line.environment.faults


@pytest.mark.parametrize("text", ["Hello there. " * 60])
async def test_a_long_text_is_planned_off_the_loop(open_line, text: str):
    """Its plan is the same, and so is everything after it."""
    async with open_line() as line:
        await line.run(job(text=text.strip(), stream=False))
        assert line.outcomes == ["started", "completed"]
        assert line.speaker.calls == 60
