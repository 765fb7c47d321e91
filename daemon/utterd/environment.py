"""What around the daemon is broken, and so whether it makes sense to take jobs."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping

import structlog

from utterd.backoff import FullJitter
from utterd.errors import EnvironmentFaultError
from utterd.ops.metrics import Metrics

log = structlog.get_logger(__name__)

Probe = Callable[[], Awaitable[object]]


class Environment:
    """Collects the faults of the surroundings by part, such as `store` or `publishing`.

    Args:
        metrics: counts the pauses.

    Attributes:
        sound: set while there is no fault.
        troubled: set while there is one.
    """

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics or Metrics()
        self.sound = asyncio.Event()
        self.troubled = asyncio.Event()
        self.sound.set()
        self._faults: dict[str, str] = {}
        self._broken: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    @property
    def faults(self) -> Mapping[str, str]:
        """Why no jobs are taken: the broken parts, and a sentence about each."""
        return dict(self._faults)

    def report(self, part: str, reason: str) -> None:
        """A part does not work."""
        if part not in self._faults:
            log.warning("paused", part=part, reason=reason)
            self._metrics.paused(part)
        self._faults[part] = reason
        self._broken[part].set()
        self.sound.clear()
        self.troubled.set()

    def clear(self, part: str) -> None:
        """A part works, perhaps again."""
        if self._faults.pop(part, None) is None:
            return
        self._broken[part].clear()
        log.info("recovered", part=part, still_broken=sorted(self._faults))
        if not self._faults:
            self.troubled.clear()
            self.sound.set()

    async def watch(self, part: str, probe: Probe, delays: FullJitter) -> None:
        """Probe a part while it is broken, until cancelled.

        A part that breaks again soon after its recovery is probed as seldom as before.

        Args:
            part: its name.
            probe: raises `EnvironmentFaultError` while the part does not work.
            delays: waits between probes.
        """
        broken, now = self._broken[part], asyncio.get_running_loop().time
        failures, recovered_at = 0, float("-inf")
        while True:
            await broken.wait()
            if now() - recovered_at > delays.cap_s:
                failures = 0
            while broken.is_set():
                if failures:
                    await delays.wait(failures)
                failures += 1
                # Others may have found meanwhile that it works.
                if broken.is_set():
                    await self._look_at(part, probe, failures)
            recovered_at = now()

    async def _look_at(self, part: str, probe: Probe, failures: int) -> None:
        try:
            await probe()
        except EnvironmentFaultError as fault:
            self.report(part, fault.message)
            log.warning("still_paused", part=part, failures=failures, reason=fault.message)
        else:
            self.clear(part)
