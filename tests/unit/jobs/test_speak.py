"""How segments are spoken and judged."""

import asyncio

import numpy as np
import pytest

from utterd.engines.pace import Pace
from utterd.engines.protocol import Take
from utterd.errors import DeadlineExceededError, EngineFailedError, InvalidAudioError
from utterd.jobs.speak import speak
from utterd.testing.engine import FixedSpeaker, tone
from utterd_schemas.job import Job

GOOD = tone(2.0)
SILENT = np.zeros(24_000, np.float32)
CUT = tone(2.0)[:24_000]
SHORT_AND_CUT = CUT[:2400]


async def test_each_segment_is_spoken_in_order(plan):
    """Clips come in reading order, each with the pause after it and a seed of its own."""
    speaker = FixedSpeaker()
    speech = await speak(plan, speaker, pace=Pace(), timeout_s=10)
    assert [one.text for one in speaker.utterances] == ["Hello there.", "How are you?"]
    assert [one.seed for one in speaker.utterances] == [plan.seed, plan.seed + 1]
    assert {(one.voice, one.language, one.speed) for one in speaker.utterances} == {
        ("low", "en", 1.0)
    }
    assert [clip.pause_after_s for clip in speech.clips] == [
        segment.pause_after_s for segment in plan.segments
    ]
    assert speech.reasons == ()


async def test_segments_are_asked_for_at_once(plan):
    """As many as there are wait for a slot together, none for the one before it."""
    speaker = FixedSpeaker()
    speaker.hold()
    async with asyncio.TaskGroup() as group:
        group.create_task(speak(plan, speaker, pace=Pace(), timeout_s=10))
        await speaker.called(2)
        speaker.release()


async def test_the_pace_is_passed_on(plan):
    """All segments share it, so that all can be hurried."""

    class NotingSpeaker:
        def __init__(self):
            self.paces = set()

        async def speak(self, utterance, *, pace=None, on_start=None, **_others):
            assert utterance.text
            on_start()
            self.paces.add(pace)
            return Take(GOOD)

    speaker, pace = NotingSpeaker(), Pace()
    await speak(plan, speaker, pace=pace, timeout_s=10)
    assert speaker.paces == {pace}


async def test_a_take_with_a_fault_is_spoken_again(planner):
    """What the engine noticed counts like a gate; a second take without it is kept (A-15)."""
    plan = planner.plan(Job(text="Hello there."))
    speaker = FixedSpeaker(Take(GOOD, ("runaway",)), GOOD)
    speech = await speak(plan, speaker, pace=Pace(), timeout_s=10)
    assert speaker.calls == 2
    assert speech.reasons == ()


async def test_a_fault_of_both_takes_is_in_the_verdict(planner):
    """The audio is kept, and its event will say why it is suspect."""
    plan = planner.plan(Job(text="Hello there."))
    speaker = FixedSpeaker(Take(GOOD, ("repeated_tokens", "runaway")), Take(GOOD, ("runaway",)))
    speech = await speak(plan, speaker, pace=Pace(), timeout_s=10)
    assert speech.reasons == ("runaway",)


async def test_a_clip_that_fails_a_gate_is_spoken_again(planner):
    """The second take has another seed, and a good one leaves no mark on the verdict."""
    plan = planner.plan(Job(text="Hello there."))
    speaker = FixedSpeaker(SILENT, GOOD)
    speech = await speak(plan, speaker, pace=Pace(), timeout_s=10)
    assert [one.seed for one in speaker.utterances] == [plan.seed, plan.seed + 1]
    assert np.array_equal(speech.clips[0].pcm, GOOD)
    assert speech.reasons == ()


async def test_no_two_takes_of_a_job_share_a_seed(plan):
    """Second takes have seeds that no other segment's first take has."""
    speaker = FixedSpeaker(SILENT)
    await speak(plan, speaker, pace=Pace(), timeout_s=10)
    assert sorted(one.seed - plan.seed for one in speaker.utterances) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("better", "worse", "reasons"),
    [
        (CUT, SHORT_AND_CUT, ("cut_tail",)),
        (SHORT_AND_CUT, SILENT, ("cut_tail", "too_short")),
    ],
    ids=["fewer failed gates", "any sound"],
)
@pytest.mark.parametrize("better_first", [True, False])
async def test_the_better_of_two_bad_takes_is_kept(planner, better, worse, reasons, better_first):
    """Silence is worst, fewer failed gates win, and there is no third take."""
    plan = planner.plan(Job(text="Hello there."))
    speaker = FixedSpeaker(*((better, worse) if better_first else (worse, better)))
    speech = await speak(plan, speaker, pace=Pace(), timeout_s=10)
    assert speaker.calls == 2
    assert np.array_equal(speech.clips[0].pcm, better)
    assert speech.reasons == reasons


async def test_samples_that_are_no_numbers_fail_the_job(plan):
    """A not-a-number is the engine's fault and is never written."""
    broken = GOOD.copy()
    broken[100] = np.nan
    with pytest.raises(InvalidAudioError):
        await speak(plan, FixedSpeaker(broken), pace=Pace(), timeout_s=10)


class HalfBrokenSpeaker:
    """Fails at the second segment, once the first one is being spoken."""

    def __init__(self):
        self.speaking = asyncio.Event()
        self.cancelled = False

    async def speak(self, utterance, *, pace=None, on_start=None, **_others):
        assert not pace.is_urgent
        on_start()
        if utterance.text == "How are you?":
            await self.speaking.wait()
            raise EngineFailedError("the engine is out of breath")
        self.speaking.set()
        try:
            return await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def test_the_first_failure_cancels_the_rest(plan):
    """The job fails with the segment's own error, and no slot is held for it any longer."""
    speaker = HalfBrokenSpeaker()
    with pytest.raises(EngineFailedError, match="out of breath"):
        await speak(plan, speaker, pace=Pace(), timeout_s=10)
    assert speaker.cancelled


class BusySpeaker(FixedSpeaker):
    """A speaker whose slots are taken until one is freed, and that never ends then."""

    def __init__(self):
        super().__init__()
        self.hold()
        self.free = asyncio.Event()

    async def speak(self, utterance, *, pace=None, on_start=None, **others):
        await self.free.wait()
        return await super().speak(utterance, pace=pace, on_start=on_start, **others)


async def test_the_wait_for_a_slot_is_free(plan):
    """Even with no time at all, a job waits for its slot; there its time begins."""
    speaker = BusySpeaker()
    speaking = asyncio.ensure_future(speak(plan, speaker, pace=Pace(), timeout_s=0))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not speaking.done()
    speaker.free.set()
    with pytest.raises(DeadlineExceededError):
        await speaking
    assert speaker.calls == len(plan.segments)


async def test_a_job_that_takes_too_long_fails(plan):
    """The limit is for all segments together, and what is still spoken is cancelled."""
    speaker = FixedSpeaker()
    speaker.hold()
    with pytest.raises(DeadlineExceededError, match=r"within 0\.01 s"):
        await speak(plan, speaker, pace=Pace(), timeout_s=0.01)


async def test_each_finished_segment_is_told(plan):
    """The count rises by one a segment, and each comes with its place and its clip."""
    told = []

    async def note(spoken):
        told.append(spoken)

    speech = await speak(plan, FixedSpeaker(), pace=Pace(), timeout_s=10, on_segment=note)
    assert [spoken.segments_done for spoken in told] == [1, 2]
    assert [spoken.number for spoken in told] == [1, 2]
    assert [spoken.clip.pause_after_s for spoken in told] == [
        clip.pause_after_s for clip in speech.clips
    ]


async def test_the_engines_begin_is_told(plan):
    """Once for each segment, so that work that has begun can be told from work that waits."""
    told = []
    await speak(
        plan, FixedSpeaker(), pace=Pace(), timeout_s=10, on_start=lambda: told.append("begun")
    )
    assert told == ["begun"] * 2
