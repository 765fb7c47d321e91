import asyncio
import errno
import os

import pytest

from utterd.errors import StoreUnavailableError
from utterd.offload import Offload
from utterd.store.spool import Spool
from utterd.testing.store import InMemoryObjectStore

FACTS = {"job-id": "maker", "frames": "5"}


@pytest.fixture
async def files():
    async with Offload("spool", threads=1) as files:
        yield files


@pytest.fixture
def open_spool(tmp_path, files):
    """Opens the test's spool, as each start of the daemon does."""

    def make(max_bytes=1000, directory=None):
        return Spool(directory or tmp_path / "spool", files, max_bytes=max_bytes)

    return make


async def keep(spool, name, data=b"audio"):
    return await spool.keep(name, data, content_type="audio/wav", metadata=FACTS)


class FullStore(InMemoryObjectStore):
    """Takes so many objects and is down then."""

    def __init__(self, room):
        super().__init__()
        self.room = room
        self.put_names = []

    async def put(self, name, *args, **kwargs):
        if not self.room:
            raise StoreUnavailableError("the bucket is full: make room")
        self.room -= 1
        self.put_names.append(name)
        return await super().put(name, *args, **kwargs)


async def test_an_empty_spool_has_nothing_to_upload(open_spool):
    """The directory need not even be there."""
    spool = open_spool()
    assert await spool.waiting() == {}
    assert await spool.flush(InMemoryObjectStore()) == 0


async def test_what_is_kept_is_uploaded_whole(open_spool):
    """Bytes, type and metadata arrive in the store, and the spool is empty again."""
    spool, objects = open_spool(), InMemoryObjectStore()
    assert await keep(spool, "speech/ab/one.wav")
    assert await spool.waiting() == {"speech/ab/one.wav": 5}
    assert await spool.flush(objects) == 1
    assert await objects.get("speech/ab/one.wav") == b"audio"
    stored = await objects.head("speech/ab/one.wav")
    assert (stored.content_type, stored.metadata) == ("audio/wav", FACTS)
    assert await spool.waiting() == {}
    assert await spool.flush(objects) == 0


async def test_a_restart_finds_what_waits(open_spool):
    """Another process opens the same directory."""
    assert await keep(open_spool(), "one.wav")
    objects = InMemoryObjectStore()
    assert await open_spool().flush(objects) == 1
    assert objects.names == {"one.wav"}


async def test_what_has_waited_longest_goes_first(open_spool, tmp_path):
    """The order is that of arrival, whatever the names."""
    spool, objects = open_spool(), FullStore(room=3)
    for age_s, name in enumerate(("b/new.wav", "c/older.wav", "a/oldest.wav")):
        await keep(spool, name)
        os.utime(tmp_path / "spool" / name, (1e9 - age_s, 1e9 - age_s))
    await spool.flush(objects)
    assert objects.put_names == ["a/oldest.wav", "c/older.wav", "b/new.wav"]


async def test_what_the_store_does_not_take_stays(open_spool):
    """A fault in the middle loses nothing, and repeats nothing that went well."""
    spool, objects = open_spool(), FullStore(room=1)
    for name in ("one.wav", "two.wav", "three.wav"):
        await keep(spool, name)
    with pytest.raises(StoreUnavailableError, match="full"):
        await spool.flush(objects)
    assert len(await spool.waiting()) == 2
    objects.room = 2
    assert await spool.flush(objects) == 2
    assert len(set(objects.put_names)) == 3
    assert await spool.waiting() == {}


async def test_it_takes_no_more_than_its_bound(open_spool):
    """What does not fit is refused, and what is there stays."""
    spool = open_spool(max_bytes=12)
    assert [await keep(spool, f"{number}.wav") for number in range(3)] == [True, True, False]
    assert await keep(spool, "small.wav", b"12")
    assert sum((await spool.waiting()).values()) == 12


async def test_many_at_once_keep_to_the_bound(open_spool):
    """Two can't take the same room."""
    spool = open_spool(max_bytes=12)
    kept = await asyncio.gather(*(keep(spool, f"{number}.wav") for number in range(8)))
    assert sum(kept) == len(await spool.waiting()) == 2


async def test_no_room_at_all_turns_it_off(open_spool):
    """Nothing is written."""
    spool = open_spool(max_bytes=0)
    assert not await keep(spool, "one.wav")
    assert await spool.waiting() == {}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
async def test_a_disk_that_takes_nothing_is_no_error(open_spool, monkeypatch, number):
    """The audio can be made again, and half a file is not left behind."""
    spool = open_spool()

    def refuse(_descriptor):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refuse)
        assert not await keep(spool, "one.wav")
    assert await spool.waiting() == {}
    assert await keep(spool, "one.wav")


async def test_a_directory_that_is_none_holds_up_nobody(open_spool, tmp_path):
    """Neither what comes to be kept nor the store's own recovery."""
    (tmp_path / "file").write_bytes(b"")
    spool = open_spool(directory=tmp_path / "file" / "spool")
    assert not await keep(spool, "one.wav")
    assert await spool.flush(InMemoryObjectStore()) == 0


async def test_a_disk_that_gives_nothing_back_holds_up_nobody(open_spool, monkeypatch):
    """What can't be read is left where it is, and the store counts as recovered."""
    spool, objects = open_spool(), InMemoryObjectStore()
    await keep(spool, "one.wav")

    def refuse(_path):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr("pathlib.Path.read_bytes", refuse)
        assert await spool.flush(objects) == 0
    assert await spool.flush(objects) == 1


@pytest.mark.parametrize("name", ["note.wav", "back\\slash.wav", "bell\x07.wav"])
async def test_a_strangers_file_is_not_uploaded(open_spool, tmp_path, name):
    """It has no facts, or no object could have its name; what is ours goes all the same."""
    spool, objects = open_spool(), InMemoryObjectStore()
    await keep(spool, "one.wav")
    (tmp_path / "spool" / name).write_bytes(b"a stranger's")
    assert await spool.flush(objects) == 1
    assert objects.names == {"one.wav"}
    assert (tmp_path / "spool" / name).exists()


async def test_an_object_that_stands_already_is_left_alone(open_spool):
    """Another daemon may have been faster: equal keys are equal audio."""
    spool, objects = open_spool(), InMemoryObjectStore()
    await objects.put("one.wav", b"other", content_type="audio/wav", metadata=FACTS)
    await keep(spool, "one.wav")
    await spool.flush(objects)
    assert await objects.get("one.wav") == b"other"
    assert await spool.waiting() == {}


async def test_two_flushes_at_once_upload_each_object_once(open_spool):
    """The second one finds nothing left."""
    spool, objects = open_spool(), FullStore(room=10)
    for number in range(3):
        await keep(spool, f"{number}.wav")
    assert sorted(await asyncio.gather(spool.flush(objects), spool.flush(objects))) == [0, 3]
    assert len(objects.put_names) == 3
