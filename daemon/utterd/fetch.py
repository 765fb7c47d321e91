"""Fetches the audio that an event tells of."""

import asyncio
from hashlib import sha256
from pathlib import Path

from utterd.client import ReceivedEvent
from utterd.errors import StoreUnavailableError
from utterd.store.protocol import ObjectStore
from utterd_schemas.events import CompletedData


async def fetch_audio(event: ReceivedEvent, path: Path, objects: ObjectStore) -> None:
    """Write the audio of a `completed` event to a file.

    Raises:
        StoreUnavailableError: the store can't be read, or its object is not the event's.
    """
    data = CompletedData.model_validate(event["data"])
    audio = await objects.get(data.object_name)
    if sha256(audio).hexdigest() != data.sha256:
        raise StoreUnavailableError(
            f"the object {data.object_name} is not the audio that the event tells of: publish the"
            " job again"
        )
    await asyncio.to_thread(path.write_bytes, audio)
