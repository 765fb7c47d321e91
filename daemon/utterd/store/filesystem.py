"""A directory that behaves like a bucket: for one machine, without a server.

An object is a plain file that any player opens. Its metadata lies beside it in a hidden
JSON file: extended attributes would be one file fewer, but not every file system has
them and copying tools drop them. Two files can't change in one step, so the rule that
keeps them in agreement is: the metadata is in place before the object appears, an old
object is gone before its metadata changes, and one writer at a time holds the
directory's lock for these renames. A crash at any point leaves either both, or metadata
without an object, which is no object at all and is overwritten by the next put. Readers
need no lock: they look at the object first and at the metadata second. A writer may be
killed before its last renames are on the disk, so whoever finds an object, and may tell
others of it, sees to that too. What a killed writer had not renamed yet stays as
`.*.new`; nothing reads it, and it may be removed.
"""

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from utterd.errors import StoreUnavailableError
from utterd.offload import Offload
from utterd.store.keys import validate_object_name
from utterd.store.metadata import validate_metadata
from utterd.store.protocol import (
    ConditionalPut,
    ObjectNotFoundError,
    PutResult,
    StoreCapabilities,
    StoredObject,
)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class _Sidecar(BaseModel):
    """What lies beside an object."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    content_type: str
    metadata: dict[str, str]


class FilesystemObjectStore:
    """An `ObjectStore` in a directory, which several processes may share.

    Args:
        root: the directory; made at the first put.
        offload: where the file calls run.
        durable: whether a finished put, and an object that was found, survive a power cut. It
            costs three `fsync` calls a put and one a find; without it, the file system writes
            within seconds on its own.
    """

    def __init__(self, root: Path, offload: Offload, *, durable: bool = True) -> None:
        self._root = root.absolute()
        self._offload = offload
        self._durable = durable

    @property
    def bucket(self) -> str:
        return str(self._root)

    async def probe(self) -> StoreCapabilities:
        name = f"utterd-probe-{secrets.token_hex(16)}"
        await self.put(name, b"probe", content_type="text/plain", metadata={})
        await self.delete(name)
        return StoreCapabilities(
            conditional_put=ConditionalPut.HONOURED,
            etag_is_md5=False,
            can_delete=True,
            can_presign=False,
        )

    async def head(self, name: str) -> StoredObject | None:
        return await self._offload.run(self._head, validate_object_name(name))

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
        sidecar = _Sidecar(content_type=content_type, metadata=dict(metadata))
        return await self._offload.run(self._put, name, data, sidecar, replace=replace)

    async def get(self, name: str) -> bytes:
        return await self._offload.run(self._get, validate_object_name(name))

    async def delete(self, name: str) -> None:
        await self._offload.run(self._delete, validate_object_name(name))

    def url(self, name: str) -> str:
        return self._path(validate_object_name(name)).as_uri()

    async def presign(self, name: str, expires_s: int) -> str | None:  # noqa: ARG002 - the protocol's
        validate_object_name(name)
        return None

    def _path(self, name: str) -> Path:
        return self._root / name

    def _head(self, name: str) -> StoredObject | None:
        path = self._path(name)
        with self._faults_explained():
            try:
                status = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            if not stat.S_ISREG(status.st_mode):
                return None
            sidecar = _read_sidecar(_sidecar_path(path))
            self._sync(path.parent)
        return StoredObject(name, status.st_size, sidecar.content_type, sidecar.metadata)

    def _put(self, name: str, data: bytes, sidecar: _Sidecar, *, replace: bool) -> PutResult:
        path = self._path(name)
        staged = path.with_name(f".{secrets.token_hex(8)}.new")
        staged_sidecar = _sidecar_path(staged)
        with self._faults_explained():
            if path.is_file() and not replace:
                return PutResult(created=False)
            self._make_directory(path.parent)
            try:
                self._write(staged, data)
                self._write(staged_sidecar, sidecar.model_dump_json().encode())
                with self._one_writer():
                    if path.is_file():
                        if not replace:
                            return PutResult(created=False)
                        path.unlink()
                    staged_sidecar.replace(_sidecar_path(path))
                    staged.replace(path)
            finally:
                staged.unlink(missing_ok=True)
                staged_sidecar.unlink(missing_ok=True)
            self._sync(path.parent)
        return PutResult(created=True)

    def _get(self, name: str) -> bytes:
        with self._faults_explained():
            try:
                return self._path(name).read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
                raise ObjectNotFoundError(
                    f"{self.url(name)} is not there: it was removed since. Send the job "
                    "again to have it made."
                ) from error

    def _delete(self, name: str) -> None:
        path = self._path(name)
        with self._faults_explained():
            if not path.parent.is_dir():
                return
            with self._one_writer():
                path.unlink(missing_ok=True)
                _sidecar_path(path).unlink(missing_ok=True)
            self._sync(path.parent)

    def _make_directory(self, directory: Path) -> None:
        if directory.is_dir():
            return
        if directory != self._root:
            self._make_directory(directory.parent)
            directory.mkdir(exist_ok=True)
            self._sync(directory.parent)
        else:
            directory.mkdir(parents=True, exist_ok=True)

    def _write(self, path: Path, data: bytes) -> None:
        with path.open("xb") as file:
            file.write(data)
            if self._durable:
                file.flush()
                os.fsync(file.fileno())

    def _sync(self, directory: Path) -> None:
        """Make the directory's entries last, which syncing the files alone does not."""
        if not self._durable:
            return
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _one_writer(self) -> Iterator[None]:
        # A descriptor of its own for each call, so that threads exclude each other too;
        # the kernel drops the lock of a killed process.
        descriptor = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _faults_explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise directory_fault(error, self._root) from error


def directory_fault(error: OSError, root: Path) -> StoreUnavailableError:
    """Explain a failed file call in the store at `root`."""
    if error.errno in _FULL:
        advice = "the disk or the quota is full; free space, or choose another directory"
    elif error.errno in _FORBIDDEN:
        advice = (
            "writing or reading is forbidden; give the daemon's user the rights, and under "
            "systemd list the directory in ReadWritePaths"
        )
    else:
        advice = f"{os.strerror(error.errno or 0)}; check the disk and the mount"
    code = errno.errorcode.get(error.errno or 0, "EIO")
    return StoreUnavailableError(
        f"The directory {str(root)!r} can't be used ({code}): {advice}.",
        bucket=str(root),
        os_code=code,
    )


def _sidecar_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.json")


def _read_sidecar(path: Path) -> _Sidecar:
    try:
        return _Sidecar.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        # A file that somebody put there by hand: an object without known metadata.
        return _Sidecar(content_type="application/octet-stream", metadata={})
