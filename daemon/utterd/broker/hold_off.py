"""How long to take no jobs, after some were only taken to be given back."""

import random

from utterd.backoff import FullJitter


def upper_half(_low: float, high: float) -> float:
    """Jitter that leaves a lower bound."""
    return random.uniform(high / 2, high)  # noqa: S311 - no secret


HOLD_OFFS = FullJitter(base_s=2.0, cap_s=600.0, uniform=upper_half)


class HoldOff:
    """Bounds how fast a flapping environment uses up the deliveries of jobs that wait.

    Each time that jobs are taken and returned counts towards their delivery limit. A first return
    costs no wait; from then on the waits double until any job is acknowledged. With the default
    waits, the 64 deliveries of the default limit last for more than four hours.

    Args:
        delays: the waits; at least half of a ceiling should be sure.
    """

    def __init__(self, delays: FullJitter = HOLD_OFFS) -> None:
        self._delays = delays
        self._has_taken = False
        self.fruitless = 0
        """Subscriptions in a row that ended without any acknowledgement."""
        self.is_on = False
        """Whether it is being waited for now."""

    def took(self) -> None:
        """A job was taken."""
        self._has_taken = True

    def acked(self) -> None:
        """A job is done: whatever was returned is coming through."""
        self.fruitless = 0

    def ended(self, *, returns_count: bool) -> None:
        """A subscription ended, and what was not done goes back.

        Args:
            returns_count: whether the broker holds that against a job.
        """
        if self._has_taken and returns_count:
            self.fruitless += 1
        self._has_taken = False

    def delay_s(self) -> float:
        """How long all must be well before jobs are taken again."""
        return self._delays.delay_s(self.fruitless - 1) if self.fruitless > 1 else 0.0

    async def sleep(self, delay_s: float) -> None:
        self.is_on = True
        try:
            await self._delays.sleep(delay_s)
        finally:
            self.is_on = False
