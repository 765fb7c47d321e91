"""Finds out what an S3 server can do, by an object that is gone afterwards."""

import base64
import hashlib
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from botocore.client import BaseClient
from botocore.exceptions import BotoCoreError, ClientError

from utterd.errors import StoreUnavailableError
from utterd.store.protocol import ConditionalPut, StoreCapabilities
from utterd.store.s3_faults import clock_skew, endpoint_host, http_status, store_fault

_FORBIDDEN = 403
_NOT_FOUND = 404
# AWS says 412; 304 and 409 are what compatible servers say to "it is there already".
EXISTS = frozenset({304, 409, 412})
"""Statuses by which a server refuses to write because something is there."""


def probe_bucket(
    client: BaseClient, bucket: str, prefix: str, *, now: Callable[[], datetime]
) -> StoreCapabilities:
    """Look for, write, write again on condition, and remove an object of a fresh name.

    Args:
        client: a boto3 client for S3.
        bucket: where.
        prefix: what the object's name begins with.
        now: this machine's clock, with a zone.

    Raises:
        StoreUnavailableError: the server is out of reach, the bucket is missing, or the
            credentials don't allow to write, or to tell a missing object from a forbidden
            one.
    """
    # A name of its own: on a shared one, another daemon's clean-up between the two
    # writes would look like a server that ignores conditions.
    name = f"{prefix}utterd-probe-{secrets.token_hex(16)}"
    endpoint = endpoint_host(client.meta.endpoint_url)
    data = name.encode()
    digest = md5(data)
    write = partial(
        client.put_object, Bucket=bucket, Key=name, Body=data, ContentMD5=base64_text(digest)
    )
    try:
        refused_look = _look_for_missing(client, bucket, name)
        # Also after a refusal: without a body, that one could not tell its reason.
        answer = write()
    except (ClientError, BotoCoreError) as error:
        raise store_fault(error, bucket=bucket, endpoint=endpoint, now=now()) from error
    try:
        condition = _second_write(partial(write, IfNoneMatch="*"))
    finally:
        can_delete = _delete(client, bucket, name)
    if refused_look is not None:
        raise _blind_fault(refused_look, bucket, endpoint, now()) from refused_look
    skew = clock_skew(answer, now())
    return StoreCapabilities(
        conditional_put=condition,
        etag_is_md5=answer.get("ETag", "").strip('"') == digest.hex(),
        can_delete=can_delete,
        can_presign=True,
        clock_skew_s=None if skew is None else skew.total_seconds(),
    )


def _look_for_missing(client: BaseClient, bucket: str, name: str) -> ClientError | None:
    """Ask for an object that was never written; returns the refusal where there is one."""
    try:
        client.head_object(Bucket=bucket, Key=name)
    except ClientError as error:
        return None if http_status(error) == _NOT_FOUND else error
    return None


def _second_write(write_on_condition: Callable[[], Mapping[str, Any]]) -> ConditionalPut:
    """Write on the condition that nothing is there, where something is."""
    try:
        write_on_condition()
    except ClientError as error:
        return ConditionalPut.HONOURED if http_status(error) in EXISTS else ConditionalPut.REFUSED
    except BotoCoreError:
        return ConditionalPut.UNANSWERED
    return ConditionalPut.IGNORED


def _delete(client: BaseClient, bucket: str, name: str) -> bool:
    try:
        client.delete_object(Bucket=bucket, Key=name)
    except (ClientError, BotoCoreError):
        # The right to delete is not needed for work, so its lack must not stop it.
        return False
    return True


def _blind_fault(
    refusal: ClientError, bucket: str, endpoint: str, now: datetime
) -> StoreUnavailableError:
    """A server that takes objects, and yet does not answer whether one is there."""
    if http_status(refusal) != _FORBIDDEN:
        return store_fault(refusal, bucket=bucket, endpoint=endpoint, now=now)
    return StoreUnavailableError(
        f"Bucket {bucket!r} at {endpoint} takes objects, but answers for a missing one as for a "
        "forbidden one (HTTP 403), so that nobody can tell whether audio is there: grant "
        "s3:ListBucket on the bucket and s3:GetObject on its objects.",
        bucket=bucket,
        endpoint=endpoint,
        http_status=_FORBIDDEN,
    )


def md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
