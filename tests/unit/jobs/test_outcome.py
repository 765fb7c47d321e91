"""What terminal events say."""

from datetime import UTC, datetime

import pytest

from utterd.broker.message import History
from utterd.config import Lane
from utterd.errors import UnknownVoiceError
from utterd.jobs.announce import Announcer
from utterd.jobs.order import Order, Sender
from utterd.jobs.outcome import completed, expired, failed
from utterd.jobs.stopwatch import Stopwatch
from utterd.store.audio_object import AudioFacts
from utterd.testing.broker import InMemoryBroker
from utterd.testing.store import InMemoryObjectStore
from utterd_schemas.events import EventType, event_id
from utterd_schemas.job import Job

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
SENDER = Sender(
    job_id="mine",
    correlation_id="c",
    reply_to="q",
    labels={"page": "3"},
    history=History(attempt=2, worker_deaths=0),
)


class Clock:
    """A clock that goes on by what it is told to."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def order():
    return Order(
        job=Job(text="Hello."),
        job_id="mine",
        sender=SENDER,
        lane=Lane.BATCH,
        expires_at=None,
        published_at=None,
        queue_s=1.5,
    )


@pytest.fixture
def facts_of(plan):
    def make(job_id="mine", quality="ok"):
        return AudioFacts(
            duration_s=2.0,
            frames=48_000,
            sample_rate_hz=24_000,
            channels=1,
            format=plan.output.format,
            engine=plan.engine,
            voice=plan.full_voice,
            bundle=plan.bundle,
            language=plan.language,
            size_bytes=96_044,
            sha256="0" * 64,
            pcm_sha256="1" * 64,
            job_id=job_id,
            quality=quality,
            has_marks=True,
        )

    return make


def test_a_completed_event_tells_the_facts(order, plan, facts_of):
    """Object, sound, verdict and times are those of the stored file and of this job's steps."""
    clock = Clock()
    stopwatch = Stopwatch(clock)
    with stopwatch.step("speak"):
        clock.now_s += 0.5
    objects = InMemoryObjectStore("bucket")
    data = completed(order, plan, facts_of(quality="clipped silent"), objects, None, stopwatch)
    assert (data.job_id, data.labels, data.attempts) == ("mine", {"page": "3"}, 2)
    assert (data.bucket, data.object_name, data.bytes) == ("bucket", plan.object_name, 96_044)
    assert data.url == f"memory://bucket/{plan.object_name}"
    assert data.marks.key == plan.marks_name
    assert data.quality.model_dump() == {"verdict": "suspect", "reasons": ("clipped", "silent")}
    assert (data.timings.queue_s, data.timings.speak_s, data.timings.total_s) == (1.5, 0.5, 0.5)
    assert data.real_time_factor == 0.25
    assert not data.cached


def test_audio_that_another_job_had_made_is_cached(order, plan, facts_of):
    """Nothing was synthesised, so there is no real-time factor."""
    stopwatch = Stopwatch(Clock())
    data = completed(order, plan, facts_of("other"), InMemoryObjectStore(), "link", stopwatch)
    assert data.cached
    assert data.real_time_factor is None
    assert data.presigned_url == "link"
    assert data.quality.verdict == "ok"


def test_a_failed_event_tells_why():
    """Code, sentence and detail are the error's."""
    data = failed("mine", SENDER, UnknownVoiceError("ask for another", voices=["a/b"]))
    assert data.error.model_dump(mode="json") == {
        "code": "unknown_voice",
        "message": "ask for another",
        "retryable": False,
        "detail": {"voices": ["a/b"]},
    }
    assert (data.attempts, data.labels) == (2, {"page": "3"})


def test_an_expired_event_tells_since_when(order):
    """The instant is the one that was missed."""
    assert expired(order, NOW).expires_at == NOW


def test_a_step_that_is_done_twice_counts_twice():
    """The stopwatch adds up, and a step that was never done took no time."""
    clock = Clock()
    stopwatch = Stopwatch(clock)
    for _ in range(2):
        with stopwatch.step("lookup"):
            clock.now_s += 0.25
    assert stopwatch.seconds("lookup") == 0.5
    assert stopwatch.seconds("speak") == 0.0


async def test_an_announcement_is_the_same_event_each_time():
    """Its id depends on job, type and number alone; the sender's wishes come along."""
    broker = InMemoryBroker()
    announcer = Announcer(sink=broker, source="/fleet", now=lambda: NOW)
    data = failed("mine", SENDER, UnknownVoiceError("ask for another"))
    await announcer.announce(data, SENDER)
    await announcer.announce(data, SENDER)
    first, second = broker.events
    assert first == second
    assert first.id == event_id("mine", EventType.FAILED)
    assert (first.subject, first.source, first.time) == ("mine", "/fleet", NOW)
    assert (first.correlation_id, first.reply_to) == ("c", "q")
