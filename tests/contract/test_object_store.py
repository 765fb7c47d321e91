"""What every object store does, be it memory, a directory or a bucket."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from utterd.environment import Environment
from utterd.errors import StoreUnavailableError
from utterd.offload import Offload
from utterd.sandbox.s3 import ACCESS_KEY_ID, BUCKET, REGION, SECRET_ACCESS_KEY, S3Server
from utterd.store.audio_object import AudioFacts
from utterd.store.filesystem import FilesystemObjectStore
from utterd.store.keys import object_name
from utterd.store.protocol import ConditionalPut, ObjectNotFoundError, ObjectStore
from utterd.store.reporting import ReportingObjectStore
from utterd.store.s3 import S3ObjectStore, open_s3_store
from utterd.store.s3_client import S3Options
from utterd.testing.store import InMemoryObjectStore
from utterd_schemas.audio import AudioFormat

NAME = object_name("speech/", "01" * 32, "wav")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@asynccontextmanager
async def open_bucket(
    server: S3Server, bucket: str = BUCKET, secret: str = SECRET_ACCESS_KEY
) -> AsyncIterator[S3ObjectStore]:
    options = S3Options(
        bucket=bucket,
        endpoint_url=server.endpoint_url,
        region=REGION,
        access_key_id=ACCESS_KEY_ID,
        secret_access_key=secret,
        prefix="speech/",
    )
    async with Offload("store", threads=2) as offload, open_s3_store(options, offload) as store:
        yield store


@pytest.fixture(
    params=["memory", "reporting", "filesystem", pytest.param("s3", marks=pytest.mark.sandbox)],
)
async def store(request, tmp_path) -> AsyncIterator[ObjectStore]:
    match request.param:
        case "memory":
            yield InMemoryObjectStore()
        case "reporting":
            yield ReportingObjectStore(InMemoryObjectStore(), Environment())
        case "filesystem":
            async with Offload("store", threads=2) as offload:
                yield FilesystemObjectStore(tmp_path, offload)
        case "s3":
            async with open_bucket(request.getfixturevalue("s3_server")) as bucket:
                # The server outlives the test, and the next one starts from nothing.
                await bucket.delete(NAME)
                yield bucket


def put(store: ObjectStore, data: bytes, maker: str = "a", **options):
    metadata = {"maker": maker}
    return store.put(NAME, data, content_type="audio/wav", metadata=metadata, **options)


@pytest.mark.parametrize("data", [b"", b"\0\r\n\xff", bytes(range(256)) * 12_000])
async def test_bytes_come_back_as_they_went(store, data):
    """Nothing, odd bytes and three megabytes are all kept exactly."""
    assert (await put(store, data)).created
    assert await store.get(NAME) == data


async def test_head_tells_size_type_and_metadata(store):
    """The facts about an object come without its bytes."""
    await put(store, b"audio")
    stored = await store.head(NAME)
    assert stored is not None
    assert (stored.name, stored.size_bytes, stored.content_type) == (NAME, 5, "audio/wav")
    assert dict(stored.metadata) == {"maker": "a"}


async def test_audio_facts_survive_at_their_longest(store):
    """The longest job id of the widest characters still fits into the metadata."""
    facts = AudioFacts(
        duration_s=1.2345678901234567,
        frames=10**12,
        sample_rate_hz=48_000,
        channels=1,
        format=AudioFormat.OPUS,
        engine="cosyvoice",
        voice="cosyvoice/中文女",
        bundle="5" * 64,
        language="zh",
        size_bytes=5,
        sha256="a" * 64,
        pcm_sha256="b" * 64,
        job_id=" \U0001f426\ud800\n" * 32,
        quality="respoken",
        has_marks=True,
    )
    await store.put(NAME, b"audio", content_type="audio/ogg", metadata=facts.to_metadata())
    stored = await store.head(NAME)
    assert stored is not None
    assert AudioFacts.from_stored(stored) == facts


async def test_a_missing_object_is_not_there(store):
    """Looking finds nothing, reading raises, and removing is fine."""
    assert await store.head(NAME) is None
    with pytest.raises(ObjectNotFoundError, match="Send the job again"):
        await store.get(NAME)
    await store.delete(NAME)


async def test_a_removed_object_is_not_there(store):
    """After a delete the name is free again."""
    await put(store, b"audio")
    await store.delete(NAME)
    assert await store.head(NAME) is None
    assert (await put(store, b"other")).created


async def test_a_second_put_leaves_the_first_object_where_the_store_can(store):
    """The first object stands; a store without conditional puts says that it overwrote it."""
    capabilities = await store.probe()
    await put(store, b"first", maker="first")
    second = await put(store, b"second", maker="second")
    assert second.created == (capabilities.conditional_put is not ConditionalPut.HONOURED)
    standing = b"second" if second.created else b"first"
    assert await store.get(NAME) == standing
    assert (await store.head(NAME)).metadata["maker"] == standing.decode()


async def test_a_replacing_put_overwrites(store):
    """A damaged object is replaced, its metadata with it."""
    await store.probe()
    await put(store, b"damaged", maker="first")
    assert (await put(store, b"whole", maker="second", replace=True)).created
    assert await store.get(NAME) == b"whole"
    assert (await store.head(NAME)).metadata["maker"] == "second"


async def test_rivals_leave_one_whole_object(store):
    """Of many puts at once one stands, its bytes and its metadata from the same call."""
    capabilities = await store.probe()
    makers = [str(number) for number in range(8)]
    results = await asyncio.gather(
        *(put(store, maker.encode() * 100_000, maker=maker) for maker in makers)
    )
    if capabilities.conditional_put is ConditionalPut.HONOURED:
        assert [result.created for result in results].count(True) == 1
    maker = (await store.head(NAME)).metadata["maker"]
    assert await store.get(NAME) == maker.encode() * 100_000


async def test_readers_never_see_half_an_object(store):
    """While an object is replaced, a reader gets the old one, the new one, or none."""
    versions = [b"a" * 300_000, b"b" * 300_000]
    await put(store, versions[0])

    async def read() -> bytes:
        try:
            return await store.get(NAME)
        except ObjectNotFoundError:
            return versions[0]

    for version in versions * 3:
        _, *seen = await asyncio.gather(
            put(store, version, replace=True), *(read() for _ in range(4))
        )
        assert set(seen) <= set(versions)


async def test_probes_do_not_disturb_each_other(store):
    """Many daemons that start together find out the same, but for the moment's clock."""
    findings = await asyncio.gather(*(store.probe() for _ in range(4)))
    assert len({replace(one, clock_skew_s=None) for one in findings}) == 1
    assert findings[0].can_delete


async def test_refuses_names_that_lead_elsewhere(store):
    """No operation takes a name that could leave the store."""
    for name in ("", "/etc/passwd", "../up", "a/../../up", "a//b", ".lock", "a\0"):
        with pytest.raises(ValueError, match=r"."):
            await store.head(name)
        with pytest.raises(ValueError, match=r"."):
            await store.put(name, b"", content_type="audio/wav", metadata={})
        with pytest.raises(ValueError, match=r"."):
            await store.get(name)
        with pytest.raises(ValueError, match=r"."):
            await store.delete(name)
        with pytest.raises(ValueError, match=r"."):
            store.url(name)
        with pytest.raises(ValueError, match=r"."):
            await store.presign(name, 60)


async def test_refuses_metadata_that_would_not_come_back(store):
    """What headers don't carry is refused by every store, so that tests find it early."""
    for metadata in ({"maker": "ü"}, {"Maker": "a"}, {"maker": "x" * 2048}):
        with pytest.raises(ValueError, match=r"."):
            await store.put(NAME, b"", content_type="audio/wav", metadata=metadata)


async def test_the_url_ends_with_the_name(store):
    """An address names the store and the object."""
    scheme, _, rest = store.url(NAME).partition("://")
    assert scheme in {"memory", "file", "s3"}
    assert rest.endswith(f"/{NAME}")
    assert store.bucket in rest


async def test_a_presigned_link_needs_no_credentials(store):
    """Where a store makes links, anyone can fetch the object by one."""
    await put(store, b"audio")
    link = await store.presign(NAME, 60)
    assert (link is not None) == (await store.probe()).can_presign
    if link is not None:
        assert await asyncio.to_thread(_fetch, link) == b"audio"


def _fetch(link: str) -> bytes:
    # No proxies: one of the environment doesn't know this machine's loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(link, timeout=10) as answer:
        body: bytes = answer.read()
    return body


@pytest.mark.sandbox
async def test_a_wrong_secret_is_told_from_other_faults(s3_server):
    """The message says that the secret is wrong, without showing it."""
    async with open_bucket(s3_server, secret="not-the-secret") as bucket:
        with pytest.raises(StoreUnavailableError, match="secret does not belong") as caught:
            await bucket.probe()
    assert "not-the-secret" not in str(caught.value)


@pytest.mark.sandbox
async def test_a_missing_bucket_is_told_from_other_faults(s3_server):
    """The message names the bucket, and says to create it."""
    async with open_bucket(s3_server, bucket="no-such-bucket") as bucket:
        with pytest.raises(StoreUnavailableError, match=r"'no-such-bucket'.*create it"):
            await bucket.probe()
