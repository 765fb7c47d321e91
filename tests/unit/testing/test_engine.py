import asyncio

import numpy as np
import pytest

from utterd.audio.gate import judge
from utterd.engines.pace import Pace
from utterd.engines.protocol import Utterance
from utterd.errors import EngineFailedError
from utterd.testing.engine import SAMPLE_RATE_HZ, FixedSpeaker, tone

UTTERANCE = Utterance(text="hello", voice="heart", language="en", speed=1.0, seed=1)


async def test_answers_come_in_turn_and_the_last_one_stays():
    """A script of samples and errors, one a call."""
    first, last = tone(0.5), tone(1.0)
    speaker = FixedSpeaker(first, EngineFailedError("out of order"), last)
    assert (await speaker.speak(UTTERANCE)).pcm is first
    with pytest.raises(EngineFailedError, match="out of order"):
        await speaker.speak(UTTERANCE, pace=Pace(urgent=True))
    assert (await speaker.speak(UTTERANCE)).pcm is last
    assert (await speaker.speak(UTTERANCE)).pcm is last
    assert speaker.calls == 4
    assert speaker.utterances == [UTTERANCE] * 4


async def test_the_start_is_told_at_the_call():
    """It has a free slot for everybody, also while it is held."""
    speaker, told = FixedSpeaker(), []
    speaker.hold()
    speaking = asyncio.ensure_future(speaker.speak(UTTERANCE, on_start=lambda: told.append(1)))
    await speaker.called()
    assert told == [1]
    speaker.release()
    await speaking


async def test_it_can_be_held():
    """A held speaker has heard the question and answers when it is released."""
    speaker = FixedSpeaker()
    speaker.hold()
    speaking = asyncio.ensure_future(speaker.speak(UTTERANCE))
    await speaker.called()
    assert not speaking.done()
    speaker.release()
    assert (await speaking).pcm.dtype == np.float32
    await speaker.speak(UTTERANCE)


async def test_calls_can_be_awaited():
    """A test waits for the second call instead of sleeping."""
    speaker = FixedSpeaker()
    waiting = asyncio.ensure_future(speaker.called(2))
    await speaker.speak(UTTERANCE)
    assert not waiting.done()
    await speaker.speak(UTTERANCE)
    await waiting


@pytest.mark.parametrize("chars", [1, 66])
def test_the_default_answer_passes_the_gates(chars):
    """A test that cares for no audio gets no second attempt."""
    assert (
        judge(tone(2.0), sample_rate_hz=SAMPLE_RATE_HZ, spoken_chars=chars, speed=1.0).reasons == ()
    )
