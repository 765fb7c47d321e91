"""What the directory store leaves on the disk."""

import errno
import os
from pathlib import Path

import pytest

from utterd.errors import StoreUnavailableError
from utterd.offload import Offload
from utterd.store.filesystem import FilesystemObjectStore, directory_fault

NAME = "01/0123.wav"


@pytest.fixture(params=[True, False], ids=["durable", "fast"])
async def store(request, tmp_path):
    async with Offload("store", threads=2) as offload:
        yield FilesystemObjectStore(tmp_path / "bucket", offload, durable=request.param)


def put(store, name=NAME, data=b"audio", **options):
    return store.put(name, data, content_type="audio/wav", metadata={"job-id": "42"}, **options)


def files(store) -> list[str]:
    root = Path(store.bucket)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


async def test_an_object_is_a_plain_file(store):
    """Any player opens what lies at the object's URL."""
    await put(store)
    assert store.url(NAME) == f"file://{store.bucket}/{NAME}"
    assert (Path(store.bucket) / NAME).read_bytes() == b"audio"


async def test_nothing_but_the_object_and_its_metadata_stays(store):
    """A put removes whatever it needed on the way."""
    await put(store)
    await put(store)
    await put(store, replace=True)
    assert files(store) == [".lock", "01/.0123.wav.json", "01/0123.wav"]


async def test_a_failed_put_leaves_nothing(store):
    """A name that the file system refuses is a fault, and its staged files are removed."""
    with pytest.raises(StoreUnavailableError, match="ENAMETOOLONG"):
        await put(store, name=f"01/{'x' * 252}")
    assert files(store) == [".lock"]


async def test_metadata_without_an_object_is_no_object(store):
    """What a crash between the two steps of a put leaves is a miss, and the next put heals it."""
    await put(store)
    (Path(store.bucket) / NAME).unlink()
    assert await store.head(NAME) is None
    assert (await put(store)).created
    assert await store.head(NAME) is not None


async def test_who_finds_an_object_makes_it_last(tmp_path, monkeypatch):
    """Its writer may have been killed before it did, and an event tells of the object next."""
    root, synced = tmp_path / "bucket", []

    def sync(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", sync)
    async with Offload("store", threads=1) as offload:
        await put(FilesystemObjectStore(root, offload, durable=False))
        await FilesystemObjectStore(root, offload).head(NAME)
    assert synced == [(root / NAME).parent]


@pytest.mark.parametrize("sidecar", [None, b"", b"{", b'{"content_type": 1}'])
async def test_an_object_without_readable_metadata_has_none(store, sidecar):
    """A file that was put there by hand is an object whose facts are unknown."""
    await put(store)
    path = Path(store.bucket) / "01/.0123.wav.json"
    if sidecar is None:
        path.unlink()
    else:
        path.write_bytes(sidecar)
    stored = await store.head(NAME)
    assert stored is not None
    assert (stored.metadata, stored.size_bytes) == ({}, 5)


async def test_a_folder_is_no_object(store):
    """The folder of other objects is neither found, nor read, nor overwritten."""
    await put(store)
    assert await store.head("01") is None
    with pytest.raises(StoreUnavailableError, match="EISDIR"):
        await put(store, name="01")
    assert (await store.head(NAME)).metadata == {"job-id": "42"}


async def test_probe_leaves_nothing(store):
    """The probe removes what it wrote."""
    await store.probe()
    assert files(store) == [".lock"]


async def test_a_root_that_is_a_file_is_a_fault(tmp_path):
    """The error names the directory and the system's code."""
    root = tmp_path / "file"
    root.write_bytes(b"")
    async with Offload("store", threads=1) as offload:
        with pytest.raises(StoreUnavailableError, match=r"file.*EEXIST"):
            await FilesystemObjectStore(root, offload).probe()


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EDQUOT, "free space"),
        (errno.EROFS, "ReadWritePaths"),
        (errno.EACCES, "rights"),
        (errno.EIO, "check the disk"),
    ],
)
def test_each_system_error_gets_its_own_advice(number, advice):
    """A full disk, a lacking right and a dying disk are different repairs."""
    fault = directory_fault(OSError(number, "hidden"), Path("/audio"))
    assert advice in fault.message
    assert errno.errorcode[number] in fault.message
    assert "/audio" in fault.message
