"""Whether the audio stands in the store already."""

from utterd.jobs.plan import Plan
from utterd.jobs.store import MARKS_BYTES
from utterd.store.audio_object import AudioFacts
from utterd.store.protocol import ObjectStore


async def lookup(plan: Plan, store: ObjectStore) -> AudioFacts | None:
    """The facts of audio that was made before, or None.

    The store is always asked: a note of our own would be wrong as soon as somebody else
    removes an object. Empty, cut or foreign objects are misses, and so is audio whose timing
    marks are wanted but missing.

    Raises:
        StoreUnavailableError: the store can't be asked.
    """
    stored = await store.head(plan.object_name)
    facts = AudioFacts.from_stored(stored) if stored else None
    if facts is None or plan.marks_name is None:
        return facts
    marks = await store.head(plan.marks_name)
    whole = marks is not None and marks.metadata.get(MARKS_BYTES) == str(marks.size_bytes)
    return facts if whole else None
