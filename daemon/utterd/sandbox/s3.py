"""A local S3 server."""

import http.client
import importlib.util
import os
import subprocess
import sys
from contextlib import closing, suppress
from functools import cached_property
from typing import ClassVar

import boto3
from botocore.config import Config

from utterd.errors import ConfigurationError
from utterd.sandbox.ports import LOOPBACK, free_ports
from utterd.sandbox.process_group import ProcessGroup
from utterd.sandbox.server import START_TIMEOUT_S, Server

BUCKET = "utterd"
REGION = "us-east-1"
ACCESS_KEY_ID = "utterd-sandbox"
SECRET_ACCESS_KEY = "utterd-sandbox-secret"  # noqa: S105 - loopback only, guards nothing

_PROBE_TIMEOUT_S = 5.0


class S3Server(Server):
    """One nanio process with one bucket, `BUCKET`, that checks every request's signature."""

    name: ClassVar[str] = "the S3 server"

    @cached_property
    def port(self) -> int:
        (port,) = free_ports(1)
        return port

    @property
    def endpoint_url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def _spawn(self, group: ProcessGroup) -> subprocess.Popen[bytes]:
        if importlib.util.find_spec("nanio") is None:
            raise ConfigurationError(
                "the sandbox's S3 server is not installed: `pip install 'utterd[sandbox]'`"
            )
        objects = self.directory / "objects"
        objects.mkdir(exist_ok=True)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("NANIO_")}
        arguments = ["-m", "nanio", "serve", "--data-dir", str(objects), "--host", LOOPBACK]
        arguments += ["--port", str(self.port), "--region", REGION]
        arguments += ["--log-level", "warning", "--no-access-log"]
        return group.spawn(
            # -P: nothing in the working directory can stand in for one of its modules.
            [sys.executable, "-P", *arguments],
            {
                **inherited,
                "NANIO_ACCESS_KEY": ACCESS_KEY_ID,
                "NANIO_SECRET_KEY": SECRET_ACCESS_KEY,
            },
        )

    def wait_ready(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        super().wait_ready(timeout_s=timeout_s)
        self._make_bucket()

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_PROBE_TIMEOUT_S)
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return False
        else:
            return True
        finally:
            connection.close()

    def _make_bucket(self) -> None:
        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
            # No proxies: a proxy of the environment doesn't know our loopback.
            config=Config(signature_version="s3v4", s3={"addressing_style": "path"}, proxies={}),
        )
        with closing(client), suppress(client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=BUCKET)
