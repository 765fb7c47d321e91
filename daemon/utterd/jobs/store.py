"""Puts a finished file where the event will say it is."""

from dataclasses import dataclass

from utterd.jobs.finish import Finished
from utterd.jobs.plan import Plan
from utterd.jobs.speak import Speech
from utterd.store.audio_object import AudioFacts
from utterd.store.protocol import ObjectStore
from utterd.store.spool import Spool

MARKS_CONTENT_TYPE = "application/json"
MARKS_BYTES = "bytes"
"""Name of the metadata that holds the marks' size, so that a cut object is noticed."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A finished file, and what is known about it.

    Attributes:
        finished: the file and its marks.
        speech: what the engine said.
        plan: what was asked for.
        job_id: the job that had it made.
    """

    finished: Finished
    speech: Speech
    plan: Plan
    job_id: str

    @property
    def facts(self) -> AudioFacts:
        encoded = self.finished.encoded
        return AudioFacts(
            duration_s=encoded.duration_s,
            frames=encoded.frames,
            sample_rate_hz=encoded.sample_rate_hz,
            channels=1,
            format=self.plan.output.format,
            engine=self.plan.engine,
            voice=self.plan.full_voice,
            bundle=self.plan.bundle,
            language=self.plan.language,
            size_bytes=len(encoded.data),
            sha256=encoded.sha256,
            pcm_sha256=self.finished.pcm_sha256,
            job_id=self.job_id,
            quality=" ".join(self.speech.reasons) or "ok",
            has_marks=self.finished.marks is not None,
        )

    @property
    def marks_metadata(self) -> dict[str, str]:
        return {
            "job-id": self.facts.to_metadata()["job-id"],
            MARKS_BYTES: str(len(self.finished.marks or b"")),
        }

    async def keep_in(self, spool: Spool) -> None:
        """Keep what the store could not take, as far as there is room."""
        encoded, plan = self.finished.encoded, self.plan
        if self.finished.marks is not None and plan.marks_name is not None:
            await spool.keep(
                plan.marks_name,
                self.finished.marks,
                content_type=MARKS_CONTENT_TYPE,
                metadata=self.marks_metadata,
            )
        await spool.keep(
            plan.object_name,
            encoded.data,
            content_type=encoded.content_type,
            metadata=self.facts.to_metadata(),
        )


async def store(upload: Upload, objects: ObjectStore) -> AudioFacts:
    """Store the marks and then the audio.

    Returns:
        The facts of the object that stands under the key: another daemon's, if it was first.

    Raises:
        StoreUnavailableError: the store is down, full or refuses.
    """
    plan, encoded, facts = upload.plan, upload.finished.encoded, upload.facts
    if upload.finished.marks is not None and plan.marks_name is not None:
        await objects.put(
            plan.marks_name,
            upload.finished.marks,
            content_type=MARKS_CONTENT_TYPE,
            metadata=upload.marks_metadata,
            replace=True,
        )
        # The marks alone may have been missing; audio that stands there was announced already.
        if (standing := await _standing(plan, objects)) is not None:
            return standing
    put = await objects.put(
        plan.object_name,
        encoded.data,
        content_type=encoded.content_type,
        metadata=facts.to_metadata(),
    )
    if put.created:
        return facts
    if (standing := await _standing(plan, objects)) is not None:
        return standing
    # What stands there is broken: a conditional put would leave it so for ever.
    await objects.put(
        plan.object_name,
        encoded.data,
        content_type=encoded.content_type,
        metadata=facts.to_metadata(),
        replace=True,
    )
    return facts


async def _standing(plan: Plan, objects: ObjectStore) -> AudioFacts | None:
    stored = await objects.head(plan.object_name)
    return AudioFacts.from_stored(stored) if stored else None


async def link_to(name: str, objects: ObjectStore, expires_s: int | None) -> str | None:
    """A link to an object that anyone may fetch for a while; None where settings allow none.

    Raises:
        StoreUnavailableError: the store can't make it.
    """
    return None if expires_s is None else await objects.presign(name, expires_s)
