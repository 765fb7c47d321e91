"""What the S3 store makes of a server's answers."""

import base64
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest
from botocore.client import BaseClient

from utterd.errors import ConfigurationError, StoreUnavailableError
from utterd.offload import Offload
from utterd.store.protocol import ConditionalPut, ObjectNotFoundError, PutResult
from utterd.store.s3 import S3ObjectStore, open_s3_store
from utterd.store.s3_client import S3Options, make_s3_client

NAME = "speech/01/0123.wav"
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
SECRET = "a-secret-that-stays-here"


@pytest.fixture(scope="module")
def options(running_server) -> S3Options:
    return S3Options(
        bucket="speech-bucket",
        endpoint_url=running_server.endpoint_url,
        region="us-east-1",
        access_key_id="key-id",
        secret_access_key=SECRET,
        prefix="speech/",
        read_timeout_s=2.0,
        attempts=1,
    )


@pytest.fixture(scope="module")
def client(options) -> Iterator[BaseClient]:
    client = make_s3_client(options, pool_size=2)
    yield client
    client.close()


@pytest.fixture
async def store(client, options) -> AsyncIterator[S3ObjectStore]:
    async with Offload("store", threads=2) as offload:
        yield S3ObjectStore(client, options, offload, clock=lambda: NOW)


def etag(data: bytes) -> dict[str, str]:
    return {"ETag": f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'}


def put(store, data=b"audio", **options):
    return store.put(NAME, data, content_type="audio/wav", metadata={}, **options)


async def probe_as_honoured(store, server, answer):
    """Let the probe find conditional puts and MD5 ETags."""
    server.script = lambda request: (
        answer(412) if request.is_conditional else answer(200, etag(request.body))
    )
    await store.probe()
    server.requests.clear()


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, ConditionalPut.IGNORED),
        (304, ConditionalPut.HONOURED),
        (409, ConditionalPut.HONOURED),
        (412, ConditionalPut.HONOURED),
        (400, ConditionalPut.REFUSED),
        (403, ConditionalPut.REFUSED),
        (501, ConditionalPut.REFUSED),
        (0, ConditionalPut.UNANSWERED),
    ],
)
async def test_probe_tells_whether_conditional_puts_work(store, server, answer, status, verdict):
    """Every answer to the second, conditional put is a finding and never an error."""
    server.script = lambda request: answer(status if request.is_conditional else 200)
    assert (await store.probe()).conditional_put is verdict


async def test_probe_cleans_up_after_itself(store, server):
    """The probe's object lies under the prefix, has a name of its own, and is removed."""
    await store.probe()
    await store.probe()
    methods = [request.method for request in server.requests]
    assert methods == ["HEAD", "PUT", "PUT", "DELETE"] * 2
    first, second = (request.path for request in server.requests if request.method == "DELETE")
    assert first != second
    assert first.startswith("/speech-bucket/speech/utterd-probe-")


async def test_probe_does_not_need_the_right_to_delete(store, server, answer):
    """A bucket that nobody may delete from is a finding."""
    server.script = lambda request: answer(403 if request.method == "DELETE" else 200)
    assert not (await store.probe()).can_delete


async def test_probe_fails_where_nothing_can_be_written(store, server, s3_error):
    """A missing bucket is a fault of the surroundings, named with the bucket and the code."""
    server.script = lambda _: s3_error(404, "NoSuchBucket")
    with pytest.raises(StoreUnavailableError, match=r"speech-bucket.*NoSuchBucket.*create it"):
        await store.probe()


async def test_probe_fails_where_missing_objects_look_forbidden(store, server, answer):
    """Without the right to list, nobody can tell whether audio is there; the message says so."""
    server.script = lambda request: answer(403 if request.method == "HEAD" else 200)
    with pytest.raises(StoreUnavailableError, match=r"takes objects, but.*grant s3:ListBucket"):
        await store.probe()
    assert server.requests[-1].method == "DELETE"


async def test_probe_tells_the_reason_that_a_refused_look_could_not(store, server, s3_error):
    """An answer to HEAD has no body; the write that follows names the wrong key."""
    server.script = lambda _: s3_error(403, "InvalidAccessKeyId")
    with pytest.raises(StoreUnavailableError, match=r"InvalidAccessKeyId.*access key is unknown"):
        await store.probe()


async def test_probe_fails_where_looks_fail_otherwise(store, server, answer):
    """A server that takes objects and can't answer for one is not ready."""
    server.script = lambda request: answer(500 if request.method == "HEAD" else 200)
    with pytest.raises(StoreUnavailableError, match="the server failed"):
        await store.probe()


@pytest.mark.parametrize(
    ("headers", "skew_s"),
    [({"Date": "Thu, 01 Jan 2026 11:59:00 GMT"}, 60.0), ({"Date": "today"}, None)],
)
async def test_probe_compares_the_clocks(store, server, answer, headers, skew_s):
    """By the time of an answer, where it tells any."""
    server.script = lambda request: answer(404 if request.method == "HEAD" else 200, headers)
    assert (await store.probe()).clock_skew_s == skew_s


async def test_puts_are_unconditional_until_the_probe_shows_better(store, server):
    """A server that was not probed is never sent a condition."""
    assert await put(store) == PutResult(created=True)
    assert not server.requests[0].is_conditional


async def test_puts_carry_an_md5_and_no_newer_checksum(store, server):
    """The checksum is the header that every server knows, not a trailer that some store."""
    await put(store, b"audio")
    headers = server.requests[0].headers
    digest = hashlib.md5(b"audio", usedforsecurity=False).digest()
    assert headers["content-md5"] == base64.b64encode(digest).decode()
    assert not [name for name in headers if "checksum" in name or "trailer" in name]
    assert server.requests[0].body == b"audio"


@pytest.mark.parametrize("status", [304, 412])
async def test_a_refused_condition_means_that_an_object_stands(store, server, answer, status):
    """The put leaves the standing object alone and says so."""
    await probe_as_honoured(store, server, answer)
    server.script = lambda _: answer(status)
    assert await put(store) == PutResult(created=False)
    assert [request.is_conditional for request in server.requests] == [True]


async def test_a_conflict_over_a_standing_object_is_like_a_refused_condition(store, server, answer):
    """After 409 the store looks; what it finds is left alone."""
    await probe_as_honoured(store, server, answer)
    server.script = lambda request: answer(409 if request.is_conditional else 200)
    assert await put(store) == PutResult(created=False)
    assert [request.method for request in server.requests] == ["PUT", "HEAD"]


async def test_a_conflict_that_left_nothing_is_overwritten(store, server, answer):
    """After 409 and no object, the audio is stored regardless, so that it isn't lost."""
    await probe_as_honoured(store, server, answer)
    statuses = {"HEAD": 404, "PUT": 200}
    server.script = lambda request: answer(
        409 if request.is_conditional else statuses[request.method]
    )
    assert await put(store) == PutResult(created=True)
    assert [request.method for request in server.requests] == ["PUT", "HEAD", "PUT"]


async def test_replacing_is_never_conditional(store, server, answer):
    """A damaged object can be written anew."""
    await probe_as_honoured(store, server, answer)
    server.script = lambda request: answer(200, etag(request.body))
    assert await put(store, replace=True) == PutResult(created=True)
    assert not server.requests[0].is_conditional


async def test_an_etag_of_other_bytes_is_a_fault(store, server, answer):
    """Where ETags are MD5 digests, one that differs means damaged audio."""
    await probe_as_honoured(store, server, answer)
    server.script = lambda _: answer(200, etag(b"other"))
    with pytest.raises(StoreUnavailableError, match="other bytes"):
        await put(store)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"ETag": '"0123456789abcdef0123456789abcdef-2"'},
        {"ETag": '"opaque"'},
        {**etag(b"other"), "x-amz-server-side-encryption": "aws:kms"},
    ],
)
async def test_etags_that_are_no_md5_are_not_compared(store, server, answer, headers):
    """Encrypted and foreign objects have ETags of another kind, which prove nothing."""
    await probe_as_honoured(store, server, answer)
    server.script = lambda _: answer(200, headers)
    assert await put(store) == PutResult(created=True)


async def test_etags_are_not_compared_on_a_server_that_gives_others(store, server, answer):
    """A server whose ETag of the probe was no MD5 is never held to it."""
    server.script = lambda _: answer(200, etag(b"other"))
    assert not (await store.probe()).etag_is_md5
    assert await put(store) == PutResult(created=True)


async def test_head_reads_metadata_whatever_its_case(store, server, answer):
    """Some servers capitalise header names."""
    headers = {"X-Amz-Meta-Job-Id": "42", "Content-Length": "5", "Content-Type": "audio/wav"}
    server.script = lambda _: answer(200, headers)
    stored = await store.head(NAME)
    assert stored is not None
    assert (stored.metadata, stored.size_bytes) == ({"job-id": "42"}, 5)


async def test_a_forbidden_head_on_a_wrong_clock_names_the_clock(store, server, answer):
    """An answer without a body still has the server's time, which tells the true reason."""
    server.script = lambda _: answer(403, {"Date": "Thu, 01 Jan 2026 11:40:00 GMT"})
    with pytest.raises(StoreUnavailableError, match="clock is 1200 s ahead"):
        await store.head(NAME)


async def test_get_tells_a_missing_object_from_a_missing_bucket(store, server, s3_error):
    """One is the object's fate, the other is a fault of the surroundings."""
    server.script = lambda _: s3_error(404, "NoSuchKey")
    with pytest.raises(ObjectNotFoundError, match=r"s3://speech-bucket/speech/01/0123\.wav"):
        await store.get(NAME)
    server.script = lambda _: s3_error(404, "NoSuchBucket")
    with pytest.raises(StoreUnavailableError, match="NoSuchBucket"):
        await store.get(NAME)


async def test_a_body_that_breaks_off_is_a_fault(store, server, answer):
    """Half an object is never returned."""
    server.script = lambda _: answer(200, {"Content-Length": "9", "Connection": "close"}, b"half")
    with pytest.raises(StoreUnavailableError, match="connection broke"):
        await store.get(NAME)


async def test_a_server_that_hangs_up_is_a_fault(store, server, answer):
    """A connection that ends without an answer becomes an error with advice."""
    server.script = lambda _: answer(0)
    with pytest.raises(StoreUnavailableError, match="connection broke"):
        await put(store)


async def test_presigned_links_hold_no_secret(store):
    """A link is signed with the secret, but does not show it."""
    link = await store.presign(NAME, 60)
    assert link.startswith("http://127.0.0.1")
    assert "X-Amz-Expires=60" in link
    assert SECRET not in link


@pytest.mark.parametrize("expires_s", [0, -1, 604_801])
async def test_presigned_links_live_up_to_a_week(store, expires_s):
    """S3 refuses longer lives, at the time of use; better to say so when signing."""
    with pytest.raises(ValueError, match="604800"):
        await store.presign(NAME, expires_s)


def test_options_do_not_show_secrets(options):
    """A dumped object gives nothing away."""
    assert SECRET not in repr(options)


@pytest.mark.parametrize(
    "wrong",
    [{"endpoint_url": "no-url"}, {"region": "no region!"}, {"secret_access_key": None}],
)
async def test_options_that_make_no_client_are_a_configuration_error(options, wrong):
    """What only a person can repair is said before the first job."""
    values = {name: getattr(options, name) for name in options.__dataclass_fields__}
    async with Offload("store", threads=1) as offload:
        with pytest.raises(ConfigurationError, match="check that the endpoint") as caught:
            async with open_s3_store(S3Options(**values | wrong), offload):
                pass
    assert SECRET not in str(caught.value)


def test_a_loopback_server_is_reached_without_the_environments_proxy(options, server, monkeypatch):
    """A proxy elsewhere would look for the server on its own loopback."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with closing(make_s3_client(options, pool_size=1)) as client:
        client.put_object(Bucket="speech-bucket", Key=NAME, Body=b"")
    assert [request.method for request in server.requests] == ["PUT"]
