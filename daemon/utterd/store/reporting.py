"""A store that tells the environment when it does not work."""

from collections.abc import Awaitable, Mapping
from typing import TypeVar

from utterd.environment import Environment
from utterd.errors import EnvironmentFaultError
from utterd.store.protocol import ObjectStore, PutResult, StoreCapabilities, StoredObject

ENVIRONMENT_PART = "store"

Result = TypeVar("Result")


class ReportingObjectStore:
    """An `ObjectStore` in front of another: after a fault of that, no more jobs are taken.

    Args:
        objects: the store itself.
        environment: told of each fault.
    """

    def __init__(self, objects: ObjectStore, environment: Environment) -> None:
        self._objects = objects
        self._environment = environment

    @property
    def bucket(self) -> str:
        return self._objects.bucket

    async def probe(self) -> StoreCapabilities:
        return await self._reported(self._objects.probe())

    async def head(self, name: str) -> StoredObject | None:
        return await self._reported(self._objects.head(name))

    async def put(
        self,
        name: str,
        data: bytes,
        *,
        content_type: str,
        metadata: Mapping[str, str],
        replace: bool = False,
    ) -> PutResult:
        return await self._reported(
            self._objects.put(
                name, data, content_type=content_type, metadata=metadata, replace=replace
            )
        )

    async def get(self, name: str) -> bytes:
        return await self._reported(self._objects.get(name))

    async def delete(self, name: str) -> None:
        await self._reported(self._objects.delete(name))

    def url(self, name: str) -> str:
        return self._objects.url(name)

    async def presign(self, name: str, expires_s: int) -> str | None:
        return await self._reported(self._objects.presign(name, expires_s))

    async def _reported(self, call: Awaitable[Result]) -> Result:
        try:
            return await call
        except EnvironmentFaultError as fault:
            self._environment.report(ENVIRONMENT_PART, fault.message)
            raise
