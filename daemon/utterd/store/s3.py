"""The store for production: a bucket of AWS S3 or of any server that speaks its protocol."""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from botocore.client import BaseClient
from botocore.exceptions import BotoCoreError, ClientError

from utterd.errors import StoreUnavailableError
from utterd.offload import Offload
from utterd.store.keys import validate_object_name, validate_prefix
from utterd.store.metadata import validate_metadata
from utterd.store.protocol import (
    ConditionalPut,
    ObjectNotFoundError,
    PutResult,
    StoreCapabilities,
    StoredObject,
)
from utterd.store.s3_client import S3Options, make_s3_client
from utterd.store.s3_faults import endpoint_host, http_status, store_fault
from utterd.store.s3_probe import EXISTS, base64_text, md5, probe_bucket

_NOT_FOUND = 404
_CONFLICT = 409
_MD5_ETAG = re.compile(r"[0-9a-f]{32}")
_WEEK_S = 7 * 24 * 3600


def _utc_now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def open_s3_store(
    options: S3Options, offload: Offload, *, clock: Callable[[], datetime] = _utc_now
) -> AsyncIterator["S3ObjectStore"]:
    """Make the client, which reads files but does not use the network yet.

    Args:
        options: which bucket, and how to reach it.
        offload: where the calls run; its threads set the size of the connection pool.
        clock: this machine's time, with a zone.

    Raises:
        ConfigurationError: boto3 can't make a client of these options.
        ValueError: the prefix is malformed.
    """
    validate_prefix(options.prefix)
    client = await offload.run(make_s3_client, options, pool_size=offload.threads + 2)
    store = S3ObjectStore(client, options, offload, clock=clock)
    try:
        yield store
    finally:
        await offload.run(store.close)


class S3ObjectStore:
    """An `ObjectStore` in a bucket; made by `open_s3_store`.

    Until `probe` has shown what the server can do, puts are neither conditional nor
    compared with the server's ETag; `Content-MD5` guards them always.
    """

    def __init__(
        self,
        client: BaseClient,
        options: S3Options,
        offload: Offload,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._options = options
        self._bucket = options.bucket
        self._prefix = options.prefix
        self._endpoint = endpoint_host(client.meta.endpoint_url)
        self._offload = offload
        self._clock = clock
        self._conditional_put_works = False
        self._etag_is_md5 = False

    @property
    def bucket(self) -> str:
        return self._bucket

    async def probe(self) -> StoreCapabilities:
        """Look for, write, write again on condition, and remove an object of a fresh name.

        Raises:
            StoreUnavailableError: the server is out of reach, the bucket is missing, or the
                credentials don't allow to write, or to tell a missing object from a
                forbidden one.
        """
        capabilities = await self._offload.run(
            probe_bucket, self._client, self._bucket, self._prefix, now=self._clock
        )
        self._conditional_put_works = capabilities.conditional_put is ConditionalPut.HONOURED
        self._etag_is_md5 = capabilities.etag_is_md5
        return capabilities

    async def use_credentials(
        self, access_key_id: str | None, secret_access_key: str | None, session_token: str | None
    ) -> None:
        """Sign all further calls with these; calls under way end as they began.

        Raises:
            ConfigurationError: boto3 can't make a client with them.
        """
        options = replace(
            self._options,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            session_token=session_token,
        )
        if options == self._options:
            return
        self._client = await self._offload.run(
            make_s3_client, options, pool_size=self._offload.threads + 2
        )
        self._options = options

    def close(self) -> None:
        self._client.close()

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
        return await self._offload.run(
            self._put,
            name,
            data,
            content_type=content_type,
            metadata=dict(metadata),
            conditional=self._conditional_put_works and not replace,
        )

    async def get(self, name: str) -> bytes:
        return await self._offload.run(self._get, validate_object_name(name))

    async def delete(self, name: str) -> None:
        await self._offload.run(self._delete, validate_object_name(name))

    def url(self, name: str) -> str:
        return f"s3://{self._bucket}/{validate_object_name(name)}"

    async def presign(self, name: str, expires_s: int) -> str | None:
        validate_object_name(name)
        if not 1 <= expires_s <= _WEEK_S:
            raise ValueError(f"A link lives from 1 to {_WEEK_S} seconds, not {expires_s}")
        return await self._offload.run(self._presign, name, expires_s)

    def _head(self, name: str) -> StoredObject | None:
        with self._faults_explained():
            try:
                answer = self._client.head_object(Bucket=self._bucket, Key=name)
            except ClientError as error:
                if http_status(error) == _NOT_FOUND:
                    return None
                raise
        return StoredObject(
            name=name,
            size_bytes=answer["ContentLength"],
            content_type=answer.get("ContentType", ""),
            # Header names have no case, and some servers capitalise them.
            metadata={key.lower(): value for key, value in answer.get("Metadata", {}).items()},
        )

    def _put(
        self,
        name: str,
        data: bytes,
        *,
        content_type: str,
        metadata: dict[str, str],
        conditional: bool,
    ) -> PutResult:
        digest = md5(data)
        write = partial(
            self._client.put_object,
            Bucket=self._bucket,
            Key=name,
            Body=data,
            ContentType=content_type,
            ContentMD5=base64_text(digest),
            Metadata=metadata,
        )
        with self._faults_explained():
            if conditional:
                try:
                    answer = write(IfNoneMatch="*")
                except ClientError as error:
                    if http_status(error) not in EXISTS:
                        raise
                    if http_status(error) != _CONFLICT or self._head(name) is not None:
                        return PutResult(created=False)
                    # AWS answers 409 when a rival's put or delete came between, and that
                    # rival may have stored nothing. Objects of one name are equals, so
                    # overwriting does no harm and a lost object would.
                    answer = write()
            else:
                answer = write()
        self._verify(answer, digest)
        return PutResult(created=True)

    def _verify(self, answer: Mapping[str, str], digest: bytes) -> None:
        """Compare what the server says it stored with the MD5 of what was sent.

        An object encrypted by the server with KMS or with a client's key has some other
        ETag of the same look.
        """
        etag = answer.get("ETag", "").strip('"')
        encrypted = answer.get("ServerSideEncryption") or answer.get("SSECustomerAlgorithm")
        comparable = self._etag_is_md5 and not encrypted and _MD5_ETAG.fullmatch(etag)
        if comparable and etag != digest.hex():
            raise StoreUnavailableError(
                f"Bucket {self._bucket!r} at {self._endpoint} stored other bytes than were "
                "sent: check its disks and any proxy before it.",
                bucket=self._bucket,
                endpoint=self._endpoint,
            )

    def _get(self, name: str) -> bytes:
        with self._faults_explained():
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=name)
            except ClientError as error:
                code = error.response.get("Error", {}).get("Code")
                if http_status(error) != _NOT_FOUND or code == "NoSuchBucket":
                    raise
                raise ObjectNotFoundError(
                    f"{self.url(name)} is not there: it was removed since, by hand or by a "
                    "lifecycle rule. Send the job again to have it made."
                ) from error
            # `closing`, because entering the body itself yields urllib3's, with its errors.
            with closing(answer["Body"]) as body:
                data: bytes = body.read()
        return data

    def _delete(self, name: str) -> None:
        with self._faults_explained():
            self._client.delete_object(Bucket=self._bucket, Key=name)

    def _presign(self, name: str, expires_s: int) -> str:
        with self._faults_explained():
            link: str = self._client.generate_presigned_url(
                "get_object",
                Params={"Bucket": self._bucket, "Key": name},
                ExpiresIn=expires_s,
            )
        return link

    @contextmanager
    def _faults_explained(self) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            raise store_fault(
                error, bucket=self._bucket, endpoint=self._endpoint, now=self._clock()
            ) from error
