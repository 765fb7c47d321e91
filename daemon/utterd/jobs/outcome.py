"""What the events say."""

from datetime import datetime

from utterd.errors import JobError
from utterd.jobs.order import Order, Sender
from utterd.jobs.plan import Plan
from utterd.jobs.stopwatch import Stopwatch
from utterd.store.audio_object import AudioFacts
from utterd.store.protocol import ObjectStore
from utterd_schemas.events import (
    CancelledData,
    CompletedData,
    ExpiredData,
    FailedData,
    Marks,
    ProgressData,
    Quality,
    SegmentAudio,
    StartedData,
)


def completed(
    order: Order,
    plan: Plan,
    facts: AudioFacts,
    objects: ObjectStore,
    presigned_url: str | None,
    stopwatch: Stopwatch,
) -> CompletedData:
    """The audio is in the store."""
    spoken_s = stopwatch.seconds("speak")
    return CompletedData(
        job_id=order.job_id,
        labels=dict(order.sender.labels),
        key=plan.key,
        bucket=objects.bucket,
        object_name=plan.object_name,
        url=objects.url(plan.object_name),
        presigned_url=presigned_url,
        content_type=plan.output.content_type,
        format=facts.format,
        sample_rate_hz=facts.sample_rate_hz,
        channels=facts.channels,
        duration_s=facts.duration_s,
        frames=facts.frames,
        bytes=facts.size_bytes,
        sha256=facts.sha256,
        # Also true of a job that waited for another's synthesis, and false of a job whose own
        # audio is found at a second delivery.
        cached=facts.job_id != order.job_id,
        engine=facts.engine,
        voice=facts.voice,
        bundle=facts.bundle,
        language=facts.language,
        attempts=order.sender.history.attempt,
        quality=quality_of(facts.quality),
        marks=Marks(key=plan.marks_name, url=objects.url(plan.marks_name))
        if plan.marks_name
        else None,
        timings=stopwatch.timings(order.queue_s),
        real_time_factor=spoken_s / facts.duration_s if spoken_s else None,
    )


def started(order: Order, plan: Plan) -> StartedData:
    """The engine is asked to speak."""
    return StartedData(
        job_id=order.job_id,
        labels=dict(order.sender.labels),
        key=plan.key,
        voice=plan.full_voice,
        segments=len(plan.segments),
        attempt=order.sender.history.attempt,
    )


def progressed(
    order: Order, plan: Plan, segments_done: int, segment: SegmentAudio | None = None
) -> ProgressData:
    """One more segment is spoken."""
    return ProgressData(
        job_id=order.job_id,
        labels=dict(order.sender.labels),
        key=plan.key,
        segments=len(plan.segments),
        segments_done=segments_done,
        segment=segment,
    )


def failed(job_id: str, sender: Sender, error: JobError) -> FailedData:
    """The job ended without audio."""
    return FailedData(
        job_id=job_id,
        labels=dict(sender.labels),
        error=error.info(),
        attempts=sender.history.attempt,
    )


def cancelled(order: Order) -> CancelledData:
    """Somebody called the job off."""
    return CancelledData(
        job_id=order.job_id,
        labels=dict(order.sender.labels),
        attempts=order.sender.history.attempt,
    )


def expired(order: Order, expires_at: datetime) -> ExpiredData:
    """The job's time was over before its audio was ready."""
    return ExpiredData(
        job_id=order.job_id,
        labels=dict(order.sender.labels),
        expires_at=expires_at,
        attempts=order.sender.history.attempt,
    )


def quality_of(recorded: str) -> Quality:
    """From the object's metadata: `ok`, or the gates that failed."""
    if recorded == "ok":
        return Quality(verdict="ok")
    return Quality(verdict="suspect", reasons=tuple(recorded.split()))
