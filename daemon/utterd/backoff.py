"""Waiting between attempts."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FullJitter:
    """Exponential back-off with full jitter: uniform between nothing and a growing ceiling.

    Source: M. Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.

    Attributes:
        base_s: the first ceiling.
        cap_s: the highest ceiling.
        uniform: the source of randomness.
        sleep: how to wait.
    """

    base_s: float
    cap_s: float
    uniform: Callable[[float, float], float] = field(default=random.uniform)
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep)

    def delay_s(self, failures: int) -> float:
        """How long to wait after this many failures in a row (1 or more)."""
        # Beyond 2**32 the cap has long been reached; the bound keeps the power finite.
        ceiling = min(self.cap_s, self.base_s * 2.0 ** min(failures - 1, 32))
        return self.uniform(0.0, ceiling)

    async def wait(self, failures: int) -> None:
        await self.sleep(self.delay_s(failures))
