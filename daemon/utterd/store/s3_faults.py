"""From what boto3 raises to what a person can do about it.

Texts name the bucket, the endpoint's host and the server's error code, and nothing else
that came over the wire: a server's own message can quote an access key.
"""

import re
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)

from utterd.errors import StoreUnavailableError

# S3 itself allows 15 minutes; the lesser servers' limit is 5.
_SKEW_LIMIT = timedelta(minutes=5)
_SKEW_CODES = frozenset({"RequestTimeTooSkewed", "RequestExpired"})

_WRONG_KEY = "the access key is unknown there; check the access key id and the endpoint"
_DENIED = (
    "the credentials are valid but may not do this; grant s3:GetObject, s3:PutObject, and "
    "s3:ListBucket, without which a missing object is answered like a forbidden one"
)
_NO_BUCKET = "the bucket does not exist; create it, or correct its name in the settings"
_BUSY = "the server is overloaded; wait, or let fewer daemons upload at once"
_WRONG_REGION = "the bucket lives elsewhere; correct the region or the endpoint"
_STALE_TOKEN = "the session token is expired or wrong; renew the temporary credentials"  # noqa: S105 - a sentence
_DAMAGED = "the bytes were damaged on the way; look for a proxy that rewrites request bodies"

_ADVICE_BY_CODE = {
    "InvalidAccessKeyId": _WRONG_KEY,
    "SignatureDoesNotMatch": (
        "the secret does not belong to the access key, or a proxy changes the request; "
        "check the secret access key and the region"
    ),
    "AccessDenied": _DENIED,
    "AllAccessDisabled": _DENIED,
    "ExpiredToken": _STALE_TOKEN,
    "InvalidToken": _STALE_TOKEN,
    "NoSuchBucket": _NO_BUCKET,
    "SlowDown": _BUSY,
    "ServiceUnavailable": _BUSY,
    "PermanentRedirect": _WRONG_REGION,
    "AuthorizationHeaderMalformed": _WRONG_REGION,
    "BadDigest": _DAMAGED,
    "InvalidDigest": _DAMAGED,
    "XMinioStorageFull": "the server's disk is full; free space there",
    "QuotaExceeded": "the bucket's quota is used up; raise it, or remove old objects",
}

# An answer to HEAD has no body, so the status is all there is.
_ADVICE_BY_STATUS = {
    301: _WRONG_REGION,
    403: (
        "the credentials were refused; check the access key, its secret and its rights "
        "(s3:GetObject, s3:PutObject, s3:ListBucket)"
    ),
    404: _NO_BUCKET,
    429: _BUSY,
    503: _BUSY,
    507: "the server's disk is full; free space there",
}

_NO_CREDENTIALS = (
    "no complete credentials were found; set an access key id with its secret, or use one "
    "of boto3's own sources"
)

_ADVICE_BY_KIND: dict[type[BotoCoreError], str] = {
    NoCredentialsError: _NO_CREDENTIALS,
    PartialCredentialsError: _NO_CREDENTIALS,
    ConnectTimeoutError: "nothing answers there; check the endpoint, the route and the firewall",
    ReadTimeoutError: "the server did not answer in time; look into its log and at its load",
    SSLError: (
        "TLS failed; check that the endpoint speaks https, and let AWS_CA_BUNDLE name the "
        "file of a private certificate authority"
    ),
    ProxyConnectionError: "the HTTP proxy is out of reach; correct HTTPS_PROXY, or set NO_PROXY",
    ParamValidationError: "boto3 refuses the request itself; check how the bucket is spelt",
}


def endpoint_host(endpoint_url: str) -> str:
    """Return `host` or `host:port`: an endpoint without the secrets that a URL can hold."""
    return urlsplit(endpoint_url).netloc.rpartition("@")[2]


def http_status(error: ClientError) -> int:
    """Return the status of the answer behind the error, or 0 where there was none."""
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status


def store_fault(
    error: ClientError | BotoCoreError, *, bucket: str, endpoint: str, now: datetime
) -> StoreUnavailableError:
    """Explain a failed call to an S3 server.

    Args:
        error: what boto3 raised.
        bucket: the bucket that the call was about.
        endpoint: the server's host and port, as `endpoint_host` gives it.
        now: this machine's time, with a zone; compared to the server's.
    """
    if isinstance(error, ClientError):
        status = http_status(error)
        # The code is the server's text, and goes into logs.
        claimed = str(error.response.get("Error", {}).get("Code", ""))
        code = claimed if re.fullmatch(r"[A-Za-z0-9.]{1,64}", claimed) else f"HTTP {status}"
        advice = _answer_advice(code, status, clock_skew(error.response, now))
    else:
        status = 0
        code = type(error).__name__
        advice = _transport_advice(error)
    return StoreUnavailableError(
        f"Bucket {bucket!r} at {endpoint} can't be used ({code}): {advice}.",
        bucket=bucket,
        endpoint=endpoint,
        s3_code=code,
        http_status=status,
    )


def _answer_advice(code: str, status: int, skew: timedelta | None) -> str:
    skewed = skew is not None and abs(skew) > _SKEW_LIMIT
    # Behind any refusal of a request that is minutes off stands the clock: servers give
    # it many names, and none in an answer to HEAD.
    if code in _SKEW_CODES or (skewed and status == 403):  # noqa: PLR2004 - Forbidden
        return _skew_advice(skew)
    if code in _ADVICE_BY_CODE:
        return _ADVICE_BY_CODE[code]
    if status in _ADVICE_BY_STATUS:
        return _ADVICE_BY_STATUS[status]
    if status >= 500:  # noqa: PLR2004 - the server's own faults begin here
        return "the server failed; look into its log"
    return "the server does not take the request; check that the endpoint speaks S3"


def clock_skew(answer: Mapping[str, Any], now: datetime) -> timedelta | None:
    """Return how far this clock is ahead of the server's, or None where it gave no time.

    Args:
        answer: boto3's, of a call that worked or failed.
        now: this machine's time, with a zone.
    """
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        server_time = parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError):
        return None
    if server_time.tzinfo is None:  # a header that ends in -0000
        server_time = server_time.replace(tzinfo=UTC)
    return now - server_time


def _skew_advice(skew: timedelta | None) -> str:
    if skew is None:
        return "clock skew: this machine's clock and the server's differ; set both by NTP"
    direction = "ahead of" if skew > timedelta() else "behind"
    return (
        f"clock skew: this machine's clock is {abs(skew).total_seconds():.0f} s {direction} "
        "the server's; set the wrong one by NTP"
    )


def _transport_advice(error: BotoCoreError) -> str:
    if isinstance(error, EndpointConnectionError):
        return _connection_advice(error)
    for kind, advice in _ADVICE_BY_KIND.items():
        if isinstance(error, kind):
            return advice
    return "the connection broke; check the network between here and there"


def _connection_advice(error: EndpointConnectionError) -> str:
    for cause in _causes(error):
        if isinstance(cause, socket.gaierror):
            return "the host name is unknown; check the endpoint's spelling and the DNS"
        if isinstance(cause, ConnectionRefusedError):
            return "the connection was refused; start the server, or correct the endpoint's port"
    return "no connection; check the endpoint, the route and the firewall"


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
