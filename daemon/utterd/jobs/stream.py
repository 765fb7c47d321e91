"""Finished segments as objects of their own, for jobs that want to be heard early.

A segment is finished and stored as a job of that one segment would be, under a name made of the
job's key and the segment's place. So a second attempt finds what the first one stored.
"""

from dataclasses import replace

from utterd.errors import InvalidAudioError
from utterd.jobs.finish import finish
from utterd.jobs.outcome import quality_of
from utterd.jobs.plan import Plan
from utterd.jobs.speak import Speech, SpokenClip
from utterd.jobs.store import Upload, link_to, store
from utterd.store.protocol import ObjectStore
from utterd_schemas.events import SegmentAudio


def segment_plan(plan: Plan, number: int) -> Plan:
    """What one segment of a plan would be as a job, without marks.

    Args:
        plan: of the whole job.
        number: the segment's place, from 1.
    """
    return replace(
        plan,
        object_name=plan.segment_name(number),
        marks_name=None,
        segments=(plan.segments[number - 1],),
    )


def finish_segment(spoken: SpokenClip, plan: Plan, job_id: str) -> Upload | None:
    """One segment's file; None when it holds nothing that can be heard. Slow: off the loop.

    Args:
        spoken: the segment.
        plan: of the whole job.
        job_id: the job that has it made.
    """
    own_plan = segment_plan(plan, spoken.number)
    speech = Speech((spoken.clip,), spoken.reasons)
    try:
        return Upload(finish(speech, own_plan), speech, own_plan, job_id)
    except InvalidAudioError:
        # Among others that can be heard, it is no fault; the whole job's own end will tell.
        return None


async def store_segment(
    upload: Upload,
    number: int,
    objects: ObjectStore,
    presign_expires_s: int | None,
) -> SegmentAudio:
    """Store one segment's file, and tell where it is.

    Args:
        upload: of `finish_segment`.
        number: the segment's place, from 1.
        objects: where it is stored.
        presign_expires_s: lifetime of the link to it; None for no link.

    Raises:
        StoreUnavailableError: the store is down, full or refuses.
    """
    facts = await store(upload, objects)
    plan = upload.plan
    return SegmentAudio(
        number=number,
        object_name=plan.object_name,
        url=objects.url(plan.object_name),
        presigned_url=await link_to(plan.object_name, objects, presign_expires_s),
        content_type=plan.output.content_type,
        format=facts.format,
        sample_rate_hz=facts.sample_rate_hz,
        duration_s=facts.duration_s,
        frames=facts.frames,
        bytes=facts.size_bytes,
        sha256=facts.sha256,
        quality=quality_of(facts.quality),
    )
