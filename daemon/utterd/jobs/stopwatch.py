"""Measures a job's steps."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from utterd_schemas.events import Timings

Span = Callable[[str], AbstractContextManager[Any]]


class Stopwatch:
    """Adds up seconds by step.

    Args:
        monotonic: the clock, in seconds.
        span: opens a span of a trace for a step.
    """

    def __init__(self, monotonic: Callable[[], float], span: Span = nullcontext) -> None:
        self._monotonic = monotonic
        self._span = span
        self._started = monotonic()
        self._steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a block as the step `name`: plan, lookup, speak, encode or store."""
        started = self._monotonic()
        try:
            with self._span(name):
                yield
        finally:
            self._steps[name] = self._steps.get(name, 0.0) + self._monotonic() - started

    def seconds(self, name: str) -> float:
        return self._steps.get(name, 0.0)

    def timings(self, queue_s: float | None) -> Timings:
        """All steps so far; the total runs from the stopwatch's making to now.

        Args:
            queue_s: how long the job waited before; None when unknown.
        """
        return Timings(
            queue_s=queue_s,
            total_s=self._monotonic() - self._started,
            **{f"{name}_s": seconds for name, seconds in self._steps.items()},
        )
