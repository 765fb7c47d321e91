"""Finished audio that the store could not take: kept on disk until it can."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import structlog

from utterd.errors import StoreUnavailableError
from utterd.offload import Offload
from utterd.store.filesystem import FilesystemObjectStore, directory_fault
from utterd.store.protocol import ObjectNotFoundError, ObjectStore, StoredObject

log = structlog.get_logger(__name__)


class Spool:
    """A bounded directory of objects that wait for their upload. A restart finds them.

    Args:
        directory: made when absent.
        offload: where the file calls run.
        max_bytes: what does not fit is not kept, and has to be spoken again.
    """

    def __init__(self, directory: Path, offload: Offload, *, max_bytes: int) -> None:
        self._directory = directory
        self._offload = offload
        self._max_bytes = max_bytes
        self._objects = FilesystemObjectStore(directory, offload)
        self._keeping = asyncio.Lock()
        self._flushing = asyncio.Lock()

    async def keep(
        self, name: str, data: bytes, *, content_type: str, metadata: Mapping[str, str]
    ) -> bool:
        """Keep an object; False when the spool is full or can't be written.

        Never raises for a disk: the audio can be made again.
        """
        try:
            # One at a time, so that two can't take the same room.
            async with self._keeping:
                waiting = await self.waiting()
                if sum(waiting.values()) + len(data) > self._max_bytes:
                    log.warning("spool_full", objects=len(waiting), max_bytes=self._max_bytes)
                    return False
                await self._objects.put(name, data, content_type=content_type, metadata=metadata)
        except StoreUnavailableError as fault:
            log.warning("spool_unavailable", reason=fault.message)
            return False
        log.info("spooled", object_name=name, size_bytes=len(data))
        return True

    async def waiting(self) -> Mapping[str, int]:
        """Names and sizes, in bytes, of the objects that wait, in the order of their arrival.

        Raises:
            StoreUnavailableError: the directory can't be read.
        """
        return await self._offload.run(_objects_in, self._directory)

    async def flush(self, objects: ObjectStore) -> int:
        """Upload all that waits; returns how many objects that were.

        What the spool's own disk does not give back stays there and is no reason to wait.

        Raises:
            StoreUnavailableError: the store can't take them yet; what is left stays.
        """
        flushed = 0
        async with self._flushing:
            try:
                names = list(await self.waiting())
            except StoreUnavailableError as fault:
                log.warning("spool_unavailable", reason=fault.message)
                return flushed
            for name in names:
                flushed += await self._upload(name, objects)
        if flushed:
            log.info("spool_flushed", objects=flushed)
        return flushed

    async def _upload(self, name: str, objects: ObjectStore) -> bool:
        kept = await self._read(name)
        if kept is None:
            return False
        stored, data = kept
        await objects.put(name, data, content_type=stored.content_type, metadata=stored.metadata)
        try:
            await self._objects.delete(name)
        except StoreUnavailableError as fault:
            log.warning("spool_unavailable", object_name=name, reason=fault.message)
        return True

    async def _read(self, name: str) -> tuple[StoredObject, bytes] | None:
        try:
            stored = await self._objects.head(name)
            data = await self._objects.get(name)
        except StoreUnavailableError as fault:
            log.warning("spool_unavailable", object_name=name, reason=fault.message)
            return None
        except (ObjectNotFoundError, ValueError):
            # Removed meanwhile, or a file of a stranger's under a name that no object has.
            return None
        # Everything of ours has metadata; without, nobody would know the object for audio.
        return (stored, data) if stored is not None and stored.metadata else None


def _objects_in(directory: Path) -> dict[str, int]:
    """Everything but the hidden files, which hold metadata."""
    try:
        found = [
            (status.st_mtime_ns, str(path.relative_to(directory)), status.st_size)
            for path in directory.rglob("*")
            if not path.name.startswith(".") and path.is_file() and (status := path.stat())
        ]
    except OSError as error:
        raise directory_fault(error, directory) from error
    return {name: size_bytes for _, name, size_bytes in sorted(found)}
