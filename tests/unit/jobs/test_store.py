"""Where the finished file goes, and what is found there."""

import pytest

from utterd.audio.join import Clip
from utterd.jobs.finish import finish
from utterd.jobs.lookup import lookup
from utterd.jobs.speak import Speech
from utterd.jobs.store import Upload, store
from utterd.store.audio_object import AudioFacts
from utterd.testing.engine import tone
from utterd.testing.store import InMemoryObjectStore
from utterd_schemas.job import Job


@pytest.fixture
def objects():
    return InMemoryObjectStore()


@pytest.fixture
def speech():
    return Speech(clips=(Clip(tone(1.0), 0.35), Clip(tone(1.5), 0.7)), reasons=("clipped",))


@pytest.fixture
def put(plan, speech, objects):
    """Store the speech as a job's."""

    async def store_as(job_id, wanted=plan):
        return await store(Upload(finish(speech, wanted), speech, wanted, job_id), objects)

    return store_as


async def test_an_empty_store_is_a_miss(plan, objects):
    """There is nothing to find."""
    assert await lookup(plan, objects) is None


async def test_what_was_stored_is_found(plan, put, objects):
    """The facts found are those of the file, the verdict and the maker among them."""
    facts = await put("maker")
    assert await lookup(plan, objects) == facts
    audio = await objects.get(plan.object_name)
    assert (facts.size_bytes, facts.job_id, facts.quality) == (len(audio), "maker", "clipped")
    assert objects.names == {plan.object_name, plan.marks_name}


@pytest.mark.parametrize("size_bytes", [0, 1000])
async def test_a_cut_object_is_a_miss(plan, put, objects, size_bytes):
    """An object of another size than its metadata tells was not written whole."""
    await put("maker")
    stored = await objects.head(plan.object_name)
    data = (await objects.get(plan.object_name))[:size_bytes]
    await objects.put(
        plan.object_name,
        data,
        content_type=stored.content_type,
        metadata=stored.metadata,
        replace=True,
    )
    assert await lookup(plan, objects) is None


async def test_a_foreign_object_is_a_miss(plan, objects):
    """Bytes without our metadata are nobody's audio."""
    await objects.put(plan.object_name, b"RIFF", content_type="audio/wav", metadata={})
    assert await lookup(plan, objects) is None


@pytest.mark.parametrize("marks", [None, b""])
async def test_audio_whose_marks_are_missing_is_a_miss_where_they_are_wanted(
    planner, plan, put, objects, marks
):
    """A job without marks still finds it."""
    facts = await put("maker")
    await objects.delete(plan.marks_name)
    if marks is not None:
        await objects.put(plan.marks_name, marks, content_type="application/json", metadata={})
    assert await lookup(plan, objects) is None
    unmarked = planner.plan(Job(text="Hello there. How are you?"))
    assert await lookup(unmarked, objects) == facts


async def test_another_daemons_object_stands(plan, put, objects):
    """Who comes second tells the facts of what the first one stored, and writes no audio."""
    first = await put("first")
    before = await objects.get(plan.object_name)
    assert await put("second") == first
    assert await objects.get(plan.object_name) == before


@pytest.mark.parametrize("standing", [b"", b"half a file"])
async def test_a_broken_object_is_replaced(plan, put, objects, standing):
    """A conditional put alone would leave it broken for ever."""
    await objects.put(plan.object_name, standing, content_type="audio/wav", metadata={})
    facts = await put("maker")
    assert facts.job_id == "maker"
    assert await lookup(plan, objects) == facts


async def test_an_object_that_vanishes_meanwhile_is_written(plan, put, objects):
    """Between a lost race and the look at the winner, somebody may clean up."""
    await put("winner")
    head = objects.head

    async def head_after_a_clean_up(name):
        await objects.delete(name)
        return await head(name)

    objects.head = head_after_a_clean_up
    assert (await put("maker")).job_id == "maker"
    assert plan.object_name in objects.names


async def test_without_a_word_from_the_gates_the_verdict_is_ok(plan, objects):
    """The metadata says so in one word."""
    speech = Speech(clips=(Clip(tone(1.0), 0.0),) * 2, reasons=())
    await store(Upload(finish(speech, plan), speech, plan, "maker"), objects)
    stored = await objects.head(plan.object_name)
    assert AudioFacts.from_stored(stored).quality == "ok"


async def test_marks_are_stored_before_the_audio(plan, speech):
    """Who finds the audio finds the marks."""
    names = []

    class NotingStore(InMemoryObjectStore):
        async def put(self, name, *args, **kwargs):
            names.append(name)
            return await super().put(name, *args, **kwargs)

    await store(Upload(finish(speech, plan), speech, plan, "maker"), NotingStore())
    assert names == [plan.marks_name, plan.object_name]


async def test_cut_marks_are_a_miss(plan, put, objects):
    """Half a JSON document is never served as the marks."""
    await put("maker")
    stored = await objects.head(plan.marks_name)
    await objects.put(
        plan.marks_name,
        (await objects.get(plan.marks_name))[:10],
        content_type=stored.content_type,
        metadata=stored.metadata,
        replace=True,
    )
    assert await lookup(plan, objects) is None


async def test_marks_that_come_later_leave_the_audio_alone(plan, put, objects):
    """An object that an event told of keeps its bytes and its digest."""
    facts = await put("maker")
    before = await objects.get(plan.object_name)
    await objects.delete(plan.marks_name)
    assert await put("later") == facts
    assert await objects.get(plan.object_name) == before
    assert await lookup(plan, objects) == facts
