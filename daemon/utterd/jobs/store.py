"""Puts a finished file where the event will say it is."""

from utterd.jobs.finish import Finished
from utterd.jobs.plan import Plan
from utterd.jobs.speak import Speech
from utterd.store.audio_object import AudioFacts
from utterd.store.protocol import ObjectStore

MARKS_CONTENT_TYPE = "application/json"


async def store(
    finished: Finished, speech: Speech, plan: Plan, job_id: str, objects: ObjectStore
) -> AudioFacts:
    """Store the marks and then the audio.

    Returns:
        The facts of the object that stands under the key: another daemon's, if it was first.

    Raises:
        StoreUnavailableError: the store is down, full or refuses.
    """
    encoded = finished.encoded
    facts = AudioFacts(
        duration_s=encoded.duration_s,
        frames=encoded.frames,
        sample_rate_hz=encoded.sample_rate_hz,
        channels=1,
        format=plan.output.format,
        engine=plan.engine,
        voice=plan.full_voice,
        bundle=plan.bundle,
        language=plan.language,
        size_bytes=len(encoded.data),
        sha256=encoded.sha256,
        pcm_sha256=finished.pcm_sha256,
        job_id=job_id,
        quality=" ".join(speech.reasons) or "ok",
        has_marks=finished.marks is not None,
    )
    if finished.marks is not None and plan.marks_name is not None:
        await objects.put(
            plan.marks_name,
            finished.marks,
            content_type=MARKS_CONTENT_TYPE,
            metadata={"job-id": facts.to_metadata()["job-id"]},
            replace=True,
        )
    put = await objects.put(
        plan.object_name,
        encoded.data,
        content_type=encoded.content_type,
        metadata=facts.to_metadata(),
    )
    if put.created:
        return facts
    standing = await objects.head(plan.object_name)
    standing_facts = AudioFacts.from_stored(standing) if standing else None
    if standing_facts is not None:
        return standing_facts
    # What stands there is broken: a conditional put would leave it so for ever.
    await objects.put(
        plan.object_name,
        encoded.data,
        content_type=encoded.content_type,
        metadata=facts.to_metadata(),
        replace=True,
    )
    return facts
