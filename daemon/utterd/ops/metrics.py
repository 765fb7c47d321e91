"""What the daemon counts and measures, for Prometheus.

Labels are names that utterd chose or that its settings hold: never an id, a text, or anything
else that a publisher can choose, so that the number of series stays bounded.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.samples import Sample

from utterd_schemas.events import CompletedData

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""From a cached job to the longest that a job may take."""

_WAITS: Final = (0.01, 0.05, 0.25, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)
"""From an idle daemon to a night's outage."""

_REAL_TIME_FACTORS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.5, 2, 4, 8)
"""From the embedded engine to a large model on a small core; 1 is as fast as speech."""


_FAILURES_KEPT: Final = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed.

    Attributes:
        at: when; with a zone.
        lane: that the job came by.
        code: of the failed event.
        outcome: what became of the job: `failed` or `postponed`.
    """

    at: datetime
    lane: str
    code: str
    outcome: str


class Metrics:
    """The metrics of one daemon, in a registry of their own.

    Args:
        now: the clock; instants have a zone.

    Attributes:
        registry: what a scrape collects.
        last_failures: the newest last.
    """

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self.registry = CollectorRegistry()
        self.last_failures: deque[Failure] = deque(maxlen=_FAILURES_KEPT)
        self._build = Info("utterd_build", "What runs here.", registry=self.registry)
        self._jobs = Counter(
            "utterd_jobs",
            "Deliveries that were settled, by how: completed, cached, failed, cancelled,"
            " expired, postponed, handed_back, rejected.",
            ("lane", "outcome"),
            registry=self.registry,
        )
        self._errors = Counter(
            "utterd_job_errors",
            "Attempts that failed, by the code that the failed event carries.",
            ("code",),
            registry=self.registry,
        )
        self._queue_seconds = Histogram(
            "utterd_job_queue_seconds",
            "How long jobs waited before they were taken, where their messages tell.",
            ("lane",),
            buckets=_WAITS,
            registry=self.registry,
        )
        self._job_seconds = Histogram(
            "utterd_job_seconds",
            "From the delivery of a job to its completed event.",
            ("lane",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._step_seconds = Histogram(
            "utterd_job_step_seconds",
            "The steps of a completed job: plan, lookup, speak, encode, store.",
            ("step",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._audio_seconds = Counter(
            "utterd_audio_seconds",
            "Playing time of the audio that was made here, by engine.",
            ("engine",),
            registry=self.registry,
        )
        self._real_time_factor = Histogram(
            "utterd_real_time_factor",
            "Seconds of synthesis for a second of audio, of jobs whose audio was made here.",
            ("engine",),
            buckets=_REAL_TIME_FACTORS,
            registry=self.registry,
        )
        self._suspect = Counter(
            "utterd_suspect_audio",
            "Jobs whose audio failed a quality gate, also after it was spoken again.",
            ("reason",),
            registry=self.registry,
        )
        self._oldest_seconds = Gauge(
            "utterd_queue_oldest_seconds",
            "Age of the job that was taken last: the head of its queue at that moment.",
            ("lane",),
            registry=self.registry,
        )
        self._queued = Gauge(
            "utterd_queue_messages",
            "Messages that are ready in a queue, as the broker told at the last look.",
            ("queue",),
            registry=self.registry,
        )
        self._consumer_losses = Counter(
            "utterd_consumer_losses",
            "Times that the daemon consumed no more and had to subscribe again, because its"
            " consumer was cancelled by the broker, or a channel or the connection was lost.",
            ("reason",),
            registry=self.registry,
        )
        self._pauses = Counter(
            "utterd_pauses",
            "Times that a part of the surroundings broke and jobs were no longer taken.",
            ("part",),
            registry=self.registry,
        )
        self._publish_failures = Counter(
            "utterd_publish_failures",
            "Publishes that the broker did not confirm and that were made again.",
            ("exchange",),
            registry=self.registry,
        )
        self._worker_deaths = Counter(
            "utterd_worker_deaths",
            "Engine workers that ended, for whatever reason, and were replaced.",
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)

    def describe_build(self, **facts: str) -> None:
        """Say what runs here: versions and names."""
        self._build.info(facts)

    def job_settled(self, lane: str, outcome: str) -> None:
        self._jobs.labels(lane, outcome).inc()

    def attempt_failed(self, lane: str, code: str, outcome: str) -> None:
        """An attempt failed, and its job is given up (`failed`) or tried again (`postponed`)."""
        self.job_settled(lane, outcome)
        self._errors.labels(code).inc()
        self.last_failures.append(Failure(self._now(), lane, code, outcome))

    def job_taken(self, lane: str, queue_s: float | None) -> None:
        """A job has left its queue.

        Args:
            lane: that it came by.
            queue_s: how long it waited; None when its message does not tell.
        """
        if queue_s is not None:
            self._queue_seconds.labels(lane).observe(queue_s)
            self._oldest_seconds.labels(lane).set(queue_s)

    def job_completed(self, lane: str, job: CompletedData) -> None:
        """A job's audio is in the store, and its event has been confirmed."""
        self.job_settled(lane, "cached" if job.cached else "completed")
        timings = job.timings
        self._job_seconds.labels(lane).observe(timings.total_s)
        for step, seconds in (
            ("plan", timings.plan_s),
            ("lookup", timings.lookup_s),
            ("speak", timings.speak_s),
            ("encode", timings.encode_s),
            ("store", timings.store_s),
        ):
            if seconds:
                self._step_seconds.labels(step).observe(seconds)
        if job.real_time_factor is not None:
            self._audio_seconds.labels(job.engine).inc(job.duration_s)
            self._real_time_factor.labels(job.engine).observe(job.real_time_factor)
            for reason in job.quality.reasons:
                self._suspect.labels(reason).inc()

    def queue_seen(self, queue: str, messages: int) -> None:
        self._queued.labels(queue).set(messages)

    def consumer_lost(self, reason: str) -> None:
        self._consumer_losses.labels(reason).inc()

    def paused(self, part: str) -> None:
        self._pauses.labels(part).inc()

    def publish_failed(self, exchange: str) -> None:
        self._publish_failures.labels(exchange).inc()

    def worker_died(self) -> None:
        self._worker_deaths.inc()

    def watch(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read at each scrape.

        Args:
            name: with its unit at the end.
            meaning: a sentence for a person.
            read: quick, and never raises.
        """
        Gauge(name, meaning, registry=self.registry).set_function(read)

    def settled(self) -> Mapping[str, int]:
        """Deliveries settled since the start, by outcome."""
        counts: dict[str, int] = {}
        for sample in self._samples(self._jobs, "utterd_jobs_total"):
            outcome = sample.labels["outcome"]
            counts[outcome] = counts.get(outcome, 0) + int(sample.value)
        return counts

    def audio_s(self) -> float:
        """Seconds of audio made since the start."""
        made = self._samples(self._audio_seconds, "utterd_audio_seconds_total")
        return sum(sample.value for sample in made)

    @staticmethod
    def _samples(metric: Counter, name: str) -> Iterator[Sample]:
        for family in metric.collect():
            yield from (sample for sample in family.samples if sample.name == name)

    def exposition(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self.registry)
