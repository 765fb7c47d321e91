"""`sandbox` and `demo`: utterd on this machine alone."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from utterd.demo import run_demo
from utterd.sandbox.command import run_sandbox

DirectoryOption = Annotated[
    Path, typer.Option("--directory", "-d", help="Where the servers keep their data.")
]

DEFAULT_DIRECTORY = Path(".sandbox")


def sandbox(directory: DirectoryOption = DEFAULT_DIRECTORY) -> None:
    """Run a private RabbitMQ node and S3 server until Ctrl-C; prints the environment to use.

    Example: utterd sandbox --directory /tmp/sandbox
    """
    raise typer.Exit(run_sandbox(directory, stream=sys.stdout))


def demo(directory: DirectoryOption = DEFAULT_DIRECTORY) -> None:
    """Run one job through a sandbox and a daemon, and fetch its audio.

    Example: utterd demo
    """
    raise typer.Exit(run_demo(directory, typer.echo))
