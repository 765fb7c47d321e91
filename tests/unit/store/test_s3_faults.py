"""From boto3's exceptions to advice."""

import socket
from contextlib import closing
from datetime import UTC, datetime

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
)

from utterd.errors import EnvironmentFaultError, StoreUnavailableError
from utterd.store.s3_client import S3Options, make_s3_client
from utterd.store.s3_faults import endpoint_host, store_fault

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
ON_TIME = "Thu, 01 Jan 2026 12:00:05 GMT"
URL = "https://user:hidden@s3.example:9000/b/k"


def explain(error: Exception) -> StoreUnavailableError:
    return store_fault(error, bucket="speech", endpoint="s3.example:9000", now=NOW)


def client_error(code: str, status: int, date: str = ON_TIME) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": "key hidden is wrong"},
            "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {"date": date}},
        },
        "PutObject",
    )


def connection_error(cause: Exception) -> EndpointConnectionError:
    error = EndpointConnectionError(endpoint_url=URL, error=cause)
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("code", "status", "advice"),
    [
        ("InvalidAccessKeyId", 403, "access key is unknown"),
        ("SignatureDoesNotMatch", 403, "secret does not belong"),
        ("AccessDenied", 403, "s3:ListBucket"),
        ("403", 403, "refused"),
        ("ExpiredToken", 400, "session token"),
        ("NoSuchBucket", 404, "create it"),
        ("404", 404, "create it"),
        ("SlowDown", 503, "overloaded"),
        ("ServiceUnavailable", 503, "overloaded"),
        ("503", 503, "overloaded"),
        ("TooManyRequests", 429, "overloaded"),
        ("PermanentRedirect", 301, "region"),
        ("BadDigest", 400, "damaged"),
        ("InternalError", 500, "server failed"),
        ("XMinioStorageFull", 507, "disk is full"),
        ("MethodNotAllowed", 405, "speaks S3"),
    ],
)
def test_each_answer_gets_its_own_advice(code, status, advice):
    """The text names bucket, host and code, and says what to do next."""
    fault = explain(client_error(code, status))
    assert advice in fault.message
    assert f"Bucket 'speech' at s3.example:9000 can't be used ({code})" in fault.message
    assert fault.detail["http_status"] == status


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (NoCredentialsError(), "no complete credentials"),
        (PartialCredentialsError(provider="x", cred_var="y"), "no complete credentials"),
        (ConnectTimeoutError(endpoint_url=URL), "nothing answers"),
        (ReadTimeoutError(endpoint_url=URL), "did not answer in time"),
        (SSLError(endpoint_url=URL, error="bad certificate"), "TLS failed"),
        (ProxyConnectionError(proxy_url=URL), "proxy"),
        (connection_error(ConnectionRefusedError()), "connection was refused"),
        (connection_error(socket.gaierror()), "host name is unknown"),
        (connection_error(OSError()), "no connection"),
        (ConnectionClosedError(endpoint_url=URL), "connection broke"),
        (ParamValidationError(report="Invalid bucket name"), "bucket is spelt"),
    ],
)
def test_each_broken_connection_gets_its_own_advice(error, advice):
    """Refused, silent, unknown, untrusted and half open are different repairs."""
    assert advice in explain(error).message


def test_a_refused_port_is_recognised():
    """What boto3 raises for a real closed port is told apart from other failures."""
    with socket.socket() as bound_but_deaf:
        bound_but_deaf.bind(("127.0.0.1", 0))
        options = S3Options(
            bucket="speech",
            endpoint_url=f"http://127.0.0.1:{bound_but_deaf.getsockname()[1]}",
            region="us-east-1",
            access_key_id="key-id",
            secret_access_key="hidden",
            attempts=1,
        )
        with (
            closing(make_s3_client(options, pool_size=1)) as client,
            pytest.raises(EndpointConnectionError) as caught,
        ):
            client.head_object(Bucket="speech", Key="k")
    assert "connection was refused" in explain(caught.value).message


@pytest.mark.parametrize("code", ["RequestTimeTooSkewed", "RequestExpired"])
@pytest.mark.parametrize(
    ("date", "skew"),
    [
        ("Thu, 01 Jan 2026 11:40:00 GMT", "1200 s ahead of"),
        ("Thu, 01 Jan 2026 12:20:00 GMT", "1200 s behind"),
        ("Thu, 01 Jan 2026 12:20:00 -0000", "1200 s behind"),
        ("no date", "clock skew"),
    ],
)
def test_a_wrong_clock_is_measured(code, date, skew):
    """The text says which clock is off by how much, where the server gives its time."""
    message = explain(client_error(code, 403, date)).message
    assert "clock skew" in message
    assert skew in message


@pytest.mark.parametrize("code", ["403", "AccessDenied", "SignatureDoesNotMatch"])
def test_a_refusal_on_a_wrong_clock_is_the_clocks_fault(code):
    """Not every server names the reason; the two clocks do."""
    message = explain(client_error(code, 403, "Thu, 01 Jan 2026 12:20:00 GMT")).message
    assert "clock skew" in message


def test_other_faults_on_a_wrong_clock_keep_their_own_advice():
    """A missing bucket stays a missing bucket."""
    message = explain(client_error("NoSuchBucket", 404, "Thu, 01 Jan 2026 12:20:00 GMT")).message
    assert "clock" not in message


@pytest.mark.parametrize(
    "error",
    [
        client_error("InvalidAccessKeyId", 403),
        client_error("<hidden>\n", 400),
        ReadTimeoutError(endpoint_url=URL),
        SSLError(endpoint_url=URL, error="hidden"),
        connection_error(ConnectionRefusedError("hidden")),
    ],
)
def test_nothing_else_from_the_wire_is_repeated(error):
    """A server's own words, and URLs with passwords, stay out of messages and details."""
    fault = explain(error)
    assert "hidden" not in fault.message
    assert "hidden" not in str(fault.detail)


def test_a_fault_is_the_surroundings_and_not_the_jobs():
    """The job may be tried again without burning an attempt."""
    fault = explain(client_error("AccessDenied", 403))
    assert isinstance(fault, EnvironmentFaultError)
    assert fault.retryable


def test_endpoint_host_drops_what_is_secret():
    """A URL may hold a password; its host doesn't."""
    assert endpoint_host(URL) == "s3.example:9000"
