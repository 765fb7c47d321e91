"""How utterd sets boto3 up, for AWS and for servers that only resemble it."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import boto3.session
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from utterd.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class S3Options:
    """Which bucket, and how to reach it.

    Args:
        bucket: the bucket's name; it must exist.
        endpoint_url: a compatible server's URL; None means AWS.
        tls_ca_file: certificates of the authorities that the server's is checked by.
        region: the bucket's region; None leaves it to boto3's own sources.
        access_key_id: None leaves the credentials to boto3's own sources.
        secret_access_key: belongs to `access_key_id`.
        session_token: for temporary credentials only.
        prefix: what the names of all objects here begin with; the probe keeps to it.
        connect_timeout_s: how long a connection may take, per attempt.
        read_timeout_s: how long the server may stay silent, per attempt.
        attempts: how often boto3 tries a call, the first time included.
    """

    bucket: str
    endpoint_url: str | None = None
    tls_ca_file: Path | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    prefix: str = ""
    connect_timeout_s: float = 3.0
    read_timeout_s: float = 15.0
    attempts: int = 3


def make_s3_client(options: S3Options, pool_size: int) -> BaseClient:
    """Make a client, which reads boto3's own files and does not use the network yet.

    Args:
        options: which bucket, and how to reach it.
        pool_size: how many connections to keep.

    Raises:
        ConfigurationError: boto3 can't make a client of these options.
    """
    config = Config(
        signature_version="s3v4",
        # Compatible servers seldom have a DNS name for each bucket.
        s3={"addressing_style": "path" if options.endpoint_url else "auto"},
        connect_timeout=options.connect_timeout_s,
        read_timeout=options.read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": options.attempts},
        max_pool_connections=pool_size,
        # boto3's newer default sends trailing checksums, which several compatible
        # servers store as part of the object or refuse.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # A proxy of the environment would look for a loopback server on its own machine.
        proxies={} if _is_loopback(options.endpoint_url) else None,
    )
    try:
        # A session of our own: making clients from the default one is not thread-safe.
        return boto3.session.Session().client(
            "s3",
            endpoint_url=options.endpoint_url,
            verify=str(options.tls_ca_file) if options.tls_ca_file else None,
            region_name=options.region,
            aws_access_key_id=options.access_key_id,
            aws_secret_access_key=options.secret_access_key,
            aws_session_token=options.session_token,
            config=config,
        )
    except (ValueError, BotoCoreError) as error:
        raise ConfigurationError(
            f"boto3 can't make an S3 client ({type(error).__name__}): check that the endpoint "
            "is a URL, the region exists, and the access key comes with its secret."
        ) from error


def _is_loopback(endpoint_url: str | None) -> bool:
    host = urlsplit(endpoint_url or "").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
