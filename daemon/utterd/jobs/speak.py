"""Has a plan's segments spoken, and judges what comes back."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from utterd.audio.gate import judge
from utterd.audio.join import Clip
from utterd.engines.pace import Pace
from utterd.engines.protocol import PCM, Take, Utterance
from utterd.errors import DeadlineExceededError
from utterd.jobs.plan import Plan
from utterd.jobs.slot_time import SlotTime
from utterd.text.front_end import SpokenSegment

MIN_SPEED, MAX_SPEED = 0.5, 2.0
"""What engines are asked for, also where a job's speed and a segment's rate add up to more."""

Started = Callable[[], None]
Reasons = tuple[str, ...]


class Speaker(Protocol):
    """Whatever turns an utterance into samples, a segment at a time."""

    async def speak(
        self,
        utterance: Utterance,
        *,
        pace: Pace | None = None,
        alone: bool = False,
        on_start: Started | None = None,
    ) -> Take: ...


@dataclass(frozen=True, slots=True)
class SpokenClip:
    """One segment that is done.

    Attributes:
        number: its place in the plan, from 1.
        clip: what the engine said.
        reasons: as in `Speech`, of this clip.
        segments_done: how many there are with this one.
    """

    number: int
    clip: Clip
    reasons: Reasons
    segments_done: int


SegmentDone = Callable[[SpokenClip], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Speech:
    """What the engine said.

    Attributes:
        clips: one a segment, in order.
        reasons: the gates that some clip failed, also when it was spoken again, and what the
            engine itself found wrong with it.
    """

    clips: tuple[Clip, ...]
    reasons: tuple[str, ...]


async def speak(
    plan: Plan,
    speaker: Speaker,
    *,
    pace: Pace,
    timeout_s: float,
    alone: bool = False,
    on_start: Started | None = None,
    on_segment: SegmentDone | None = None,
) -> Speech:
    """Speak all segments, as many at once as there are free slots.

    A clip that fails a gate, or that the engine finds fault with, is spoken once more with the
    next seed; the better one is kept.

    Args:
        plan: what to say.
        speaker: the engine.
        pace: how soon the segments are wanted.
        timeout_s: how long slots may work on all segments together.
        alone: whether nothing else is spoken in the same worker meanwhile.
        on_start: told when the engine begins with a segment.
        on_segment: told of each segment that is done, while others may still be spoken.

    Raises:
        JobError: the engine failed, or time is up.
    """
    done = 0

    async def speak_one(
        segment: SpokenSegment, number: int, slot_time: SlotTime
    ) -> tuple[Clip, Reasons]:
        nonlocal done

        async def say(utterance: Utterance) -> Take:
            with slot_time.segment(on_start) as begin:
                return await speaker.speak(utterance, pace=pace, alone=alone, on_start=begin)

        pcm, reasons = await _speak_well(plan, segment, number, say)
        if segment.gain != 1.0:
            pcm = pcm * np.float32(segment.gain)
        clip = Clip(pcm, segment.pause_after_s)
        done += 1
        if on_segment is not None:
            await on_segment(SpokenClip(number + 1, clip, reasons, done))
        return clip, reasons

    try:
        async with asyncio.timeout(None) as timeout, asyncio.TaskGroup() as group:
            slot_time = SlotTime(timeout_s, timeout, asyncio.get_running_loop().time)
            tasks = [
                group.create_task(speak_one(segment, number, slot_time), name=f"segment-{number}")
                for number, segment in enumerate(plan.segments)
            ]
    except TimeoutError:
        raise DeadlineExceededError(
            f"the job was not spoken within {timeout_s:g} s: send less text in one job, or raise"
            " speech.job_timeout_s"
        ) from None
    except BaseExceptionGroup as errors:
        # The first segment that fails fails the job; the others were cancelled for it.
        raise errors.exceptions[0] from None
    spoken = [task.result() for task in tasks]
    return Speech(
        clips=tuple(clip for clip, _ in spoken),
        reasons=tuple(sorted({reason for _, reasons in spoken for reason in reasons})),
    )


async def _speak_well(
    plan: Plan, segment: SpokenSegment, number: int, say: Callable[[Utterance], Awaitable[Take]]
) -> tuple[PCM, Reasons]:
    speed = min(max(plan.speed * segment.rate, MIN_SPEED), MAX_SPEED)
    takes: list[tuple[PCM, Reasons]] = []
    # Each segment has seeds of its own, so that a text's segments may be spoken in any order.
    for seed in (plan.seed + number, plan.seed + number + len(plan.segments)):
        utterance = Utterance(
            text=segment.spoken,
            voice=plan.voice,
            language=plan.language,
            speed=speed,
            seed=seed,
        )
        take = await say(utterance)
        quality = judge(
            take.pcm,
            sample_rate_hz=plan.native_rate_hz,
            spoken_chars=sum(map(str.isalnum, segment.spoken)),
            speed=speed,
        )
        reasons: Reasons = (*quality.reasons, *take.faults)
        takes.append((take.pcm, reasons))
        if not reasons:
            break
    # Any sound is better than none: silence is a sentence that is missing.
    return min(takes, key=lambda take: ("silent" in take[1], len(take[1])))
