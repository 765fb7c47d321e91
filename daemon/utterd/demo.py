"""The main job once, on real parts: sandbox, daemon, publish, event, audio."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr

from utterd.app import open_store
from utterd.broker import declare
from utterd.broker.topology import topology
from utterd.client import ReceivedEvent, open_client
from utterd.config import ENV_PREFIX, BrokerSettings, Lane, StoreSettings
from utterd.errors import ConfigurationError
from utterd.fetch import fetch_audio
from utterd.sandbox.sandbox import Sandbox
from utterd.settings_sources import CONFIG_VARIABLE, CREDENTIALS_VARIABLE, environment_name
from utterd_schemas.events import EventType
from utterd_schemas.job import Job

Report = Callable[[str], None]

DEMO_JOB = Job(
    text="Hello from utterd. This sentence went through a queue, a model and a bucket.",
    labels={"from": "make demo"},
)

_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 30.0


def run_demo(directory: Path, report: Report) -> int:
    """Tell of progress, then the completed event as JSON, then the path of the audio file.

    Args:
        directory: where the sandbox keeps its data; a second run there finds the audio made.
        report: prints one line.

    Returns:
        The exit status: 0 when the job completed.

    Raises:
        ConfigurationError: a piece is missing or does not start.
        NoOutcomeError: no event came in time.
    """
    report("starting RabbitMQ and an S3 server")
    with Sandbox(directory) as sandbox:
        report("starting utterd")
        with _daemon(directory, _environment(sandbox)) as daemon:
            event, audio = asyncio.run(_one_job(sandbox, directory, daemon, report))
    report(json.dumps(event, ensure_ascii=False))
    if audio is None:
        return 1
    report(str(audio))
    return 0


@contextmanager
def _daemon(directory: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon in a process of its own, stopped as systemd would."""
    with (directory / "utterd.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "utterd", "run"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _one_job(
    sandbox: Sandbox, directory: Path, daemon: subprocess.Popen[bytes], report: Report
) -> tuple[ReceivedEvent, Path | None]:
    broker = BrokerSettings(url=SecretStr(sandbox.amqp_url))
    async with open_client(broker, "utterd demo") as client, asyncio.TaskGroup() as tasks:
        # The daemon declares the same; whoever is first makes it.
        await declare.apply(client.connection, topology(broker))
        report("publishing a job of two sentences")
        watching = tasks.create_task(_fail_when_ended(daemon, directory), name="daemon")
        event = await client.publish_and_wait(DEMO_JOB, Lane.INTERACTIVE, timeout_s=_TIMEOUT_S)
        watching.cancel()
    if event["type"] != EventType.COMPLETED:
        return event, None
    audio = (directory / "demo.wav").resolve()
    async with open_store(_store_settings(sandbox)) as objects:
        await fetch_audio(event, audio, objects)
    return event, audio


def _environment(sandbox: Sandbox) -> dict[str, str]:
    """The daemon's environment, without any settings of this machine's own.

    It takes a free port: another daemon may be running on this machine.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    own.pop(CREDENTIALS_VARIABLE, None)
    free_port = {environment_name("health.port"): "0"}
    return own | sandbox.environ() | free_port | {CONFIG_VARIABLE: os.devnull}


async def _fail_when_ended(daemon: subprocess.Popen[bytes], directory: Path) -> None:
    """Wait for the end of the daemon, which is not to come before its stop."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    process_fd = os.pidfd_open(daemon.pid)
    loop.add_reader(process_fd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(process_fd)
        os.close(process_fd)
    raise ConfigurationError(f"the daemon ended early; its log is {directory / 'utterd.log'}")


def _store_settings(sandbox: Sandbox) -> StoreSettings:
    prefix = "UTTERD_STORE__"
    return StoreSettings.model_validate(
        {
            name.removeprefix(prefix).lower(): value
            for name, value in sandbox.environ().items()
            if name.startswith(prefix)
        }
    )
