"""The seam between the daemon and the place where audio lies."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from utterd.errors import UtterdError


class ObjectNotFoundError(UtterdError):
    """The object was never stored, or was removed since."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a store knows about an object without reading it."""

    name: str
    size_bytes: int
    content_type: str
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PutResult:
    """What became of a put.

    Args:
        created: whether the object is this call's. If not, one stood there already and
            was left alone: `head` tells its facts. A store without conditional puts
            always writes, and always says true.
    """

    created: bool


class ConditionalPut(StrEnum):
    """What a store makes of "create this object unless it is there"."""

    HONOURED = "honoured"
    IGNORED = "ignored"
    REFUSED = "refused"
    UNANSWERED = "unanswered"


@dataclass(frozen=True, slots=True)
class StoreCapabilities:
    """What a probe found out about a store that takes objects at all.

    Args:
        conditional_put: HONOURED where rivals can't overwrite each other's object.
        etag_is_md5: whether the store's answer to a put proves what was written.
        can_delete: whether objects can be removed; the daemon itself only removes its
            probes.
        can_presign: whether `presign` returns links.
        clock_skew_s: how far this machine's clock is ahead of the server's, to the second;
            None where the server tells no time.
    """

    conditional_put: ConditionalPut
    etag_is_md5: bool
    can_delete: bool
    can_presign: bool
    clock_skew_s: float | None = None


class ObjectStore(Protocol):
    """Named, immutable blobs with a little metadata.

    Names satisfy `keys.validate_object_name` and metadata `metadata.validate_metadata`;
    anything else raises `ValueError`. Every coroutine raises `StoreUnavailableError`
    when the store is out of reach, refuses, or is full.
    """

    @property
    def bucket(self) -> str:
        """The bucket's name, or what stands for it, as events give it."""

    async def probe(self) -> StoreCapabilities:
        """Write and remove a small object of a fresh name, to learn what the store can do.

        A missing capability is an answer, not an error. Safe beside other daemons.
        """

    async def head(self, name: str) -> StoredObject | None:
        """Return what is known about an object, or None where there is none."""

    async def put(
        self,
        name: str,
        data: bytes,
        *,
        content_type: str,
        metadata: Mapping[str, str],
        replace: bool = False,
    ) -> PutResult:
        """Store an object; readers see all of it or nothing.

        Args:
            name: the object's name.
            data: the object's bytes.
            content_type: the media type, such as `audio/wav`.
            metadata: what `head` gives back.
            replace: write even where an object stands: for one that turned out damaged.
        """

    async def get(self, name: str) -> bytes:
        """Return an object's bytes.

        Raises:
            ObjectNotFoundError: there is no such object.
        """

    async def delete(self, name: str) -> None:
        """Remove an object; a missing one is fine."""

    def url(self, name: str) -> str:
        """Return the object's address, such as `s3://bucket/name` or `file:///...`."""

    async def presign(self, name: str, expires_s: int) -> str | None:
        """Return a link that anyone may fetch until it expires, or None if there are none.

        Args:
            name: the object's name; it needs not exist yet.
            expires_s: lifetime in seconds, from 1 to 604800 (a week).

        Raises:
            ValueError: the store makes links, but none of this lifetime.
        """
