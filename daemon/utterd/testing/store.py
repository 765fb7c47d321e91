"""A bucket in memory."""

from collections.abc import Mapping
from types import MappingProxyType

from utterd.store.keys import validate_object_name
from utterd.store.metadata import validate_metadata
from utterd.store.protocol import (
    ConditionalPut,
    ObjectNotFoundError,
    PutResult,
    StoreCapabilities,
    StoredObject,
)


class InMemoryObjectStore:
    """An `ObjectStore` that forgets everything with the process."""

    def __init__(self, bucket: str = "memory") -> None:
        self._bucket = bucket
        self._objects: dict[str, tuple[StoredObject, bytes]] = {}

    @property
    def bucket(self) -> str:
        return self._bucket

    @property
    def names(self) -> frozenset[str]:
        """The names of all objects that stand now."""
        return frozenset(self._objects)

    async def probe(self) -> StoreCapabilities:
        return StoreCapabilities(
            conditional_put=ConditionalPut.HONOURED,
            etag_is_md5=False,
            can_delete=True,
            can_presign=False,
        )

    async def head(self, name: str) -> StoredObject | None:
        stored = self._objects.get(validate_object_name(name))
        return stored[0] if stored else None

    async def put(
        self,
        name: str,
        data: bytes,
        *,
        content_type: str,
        metadata: Mapping[str, str],
        replace: bool = False,
    ) -> PutResult:
        validate_object_name(name)
        validate_metadata(metadata)
        if name in self._objects and not replace:
            return PutResult(created=False)
        facts = MappingProxyType(dict(metadata))
        self._objects[name] = StoredObject(name, len(data), content_type, facts), data
        return PutResult(created=True)

    async def get(self, name: str) -> bytes:
        stored = self._objects.get(validate_object_name(name))
        if stored is None:
            raise ObjectNotFoundError(
                f"{self.url(name)} is not there. Send the job again to have it made."
            )
        return stored[1]

    async def delete(self, name: str) -> None:
        self._objects.pop(validate_object_name(name), None)

    def url(self, name: str) -> str:
        return f"memory://{self._bucket}/{validate_object_name(name)}"

    async def presign(self, name: str, expires_s: int) -> str | None:  # noqa: ARG002 - the protocol's
        validate_object_name(name)
        return None
