"""A speaker that says what it is told to."""

import asyncio
from collections.abc import Callable

import numpy as np

from utterd.engines.pace import Pace
from utterd.engines.protocol import PCM, Take, Utterance
from utterd.errors import JobError

SAMPLE_RATE_HZ = 24_000


class FixedSpeaker:
    """A `Speaker` that answers from a list, without an engine.

    Args:
        answers: samples or takes to return and errors to raise, one a call; the last is repeated.
            Without any, two seconds of a tone, which every quality gate lets pass for up to
            66 letters.

    Attributes:
        utterances: what it was asked to say, in order, also while it is held.
    """

    def __init__(self, *answers: PCM | Take | JobError) -> None:
        self._answers = answers or (tone(2.0),)
        self.utterances: list[Utterance] = []
        self._free = asyncio.Event()
        self._free.set()
        self._called = asyncio.Event()

    @property
    def calls(self) -> int:
        """How often it was asked."""
        return len(self.utterances)

    def hold(self) -> None:
        """Answer no one from now on, as a slow engine does."""
        self._free.clear()

    def release(self) -> None:
        """Answer who waits, and again at once who comes."""
        self._free.set()

    async def called(self, count: int = 1) -> None:
        """Wait until it was asked at least `count` times."""
        while self.calls < count:
            self._called.clear()
            await self._called.wait()

    async def speak(
        self,
        utterance: Utterance,
        *,
        pace: Pace | None = None,  # noqa: ARG002 - the protocol's
        alone: bool = False,  # noqa: ARG002 - the protocol's
        on_start: Callable[[], None] | None = None,
    ) -> Take:
        if on_start is not None:
            on_start()
        answer = self._answers[min(self.calls, len(self._answers) - 1)]
        self.utterances.append(utterance)
        self._called.set()
        await self._free.wait()
        if isinstance(answer, JobError):
            raise answer
        return answer if isinstance(answer, Take) else Take(answer)


def tone(duration_s: float, *, sample_rate_hz: int = SAMPLE_RATE_HZ) -> PCM:
    """A sine at half of full scale that fades out, float32 of shape (n,)."""
    seconds = np.arange(round(duration_s * sample_rate_hz)) / sample_rate_hz
    fade = np.clip((duration_s - seconds) / 0.05, 0.0, 1.0)
    return (0.5 * fade * np.sin(2 * np.pi * 220.0 * seconds)).astype(np.float32)
