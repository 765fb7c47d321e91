import asyncio
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import aio_pika
import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from utterd.errors import ConfigurationError
from utterd.sandbox import RabbitNode, S3Server, Sandbox
from utterd.sandbox.ports import free_ports
from utterd.sandbox.process_group import ProcessGroup

RUN_SANDBOX = """
import sys
from pathlib import Path
from utterd.sandbox import run_sandbox
sys.exit(run_sandbox(Path(sys.argv[1]), stream=sys.stdout))
"""

START_S3_AND_HANG = """
import signal, sys
from pathlib import Path
from utterd.sandbox import S3Server
S3Server(Path(sys.argv[1])).start()
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def neighbour(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A second sandbox beside the session's, for the tests that kill."""
    with Sandbox(tmp_path_factory.mktemp("neighbour")) as neighbour:
        assert neighbour.amqp_url != sandbox.amqp_url
        yield neighbour


async def publish(amqp_url: str, queue: str, body: bytes) -> None:
    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"})
        await channel.default_exchange.publish(aio_pika.Message(body), queue)


async def get(amqp_url: str, queue: str) -> bytes:
    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel()
        message = await (await channel.get_queue(queue)).get()
        assert message is not None
        await message.ack()
        return message.body


def s3_client(environ: dict[str, str], **overrides: str):
    arguments = {
        "endpoint_url": environ["UTTERD_STORE__ENDPOINT_URL"],
        "region_name": environ["UTTERD_STORE__REGION"],
        "aws_access_key_id": environ["UTTERD_STORE__ACCESS_KEY_ID"],
        "aws_secret_access_key": environ["UTTERD_STORE__SECRET_ACCESS_KEY"],
    }
    return boto3.client("s3", **arguments | overrides, config=Config(proxies={}))


def processes_of(directory: Path) -> list[int]:
    """Processes that name the directory in their command or environment, or hold its files."""
    needle = os.fsencode(directory)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            traces = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            traces += b"".join(os.fsencode(fd.readlink()) for fd in (process / "fd").iterdir())
        except OSError:
            continue
        if needle in traces:
            found.append(int(process.name))
    return found


@pytest.mark.sandbox
def test_broker_takes_and_gives_a_message(sandbox: Sandbox) -> None:
    """The printed URL logs in, and a confirmed message comes back."""
    amqp_url = sandbox.environ()["UTTERD_BROKER__URL"]
    asyncio.run(publish(amqp_url, "test.sandbox", b"hello"))
    assert asyncio.run(get(amqp_url, "test.sandbox")) == b"hello"


@pytest.mark.sandbox
def test_servers_listen_on_loopback_only(sandbox: Sandbox) -> None:
    """Nobody outside this machine reaches any of the ports."""
    ports = sandbox.rabbitmq.ports
    for port in (ports.amqp, ports.management, ports.distribution, ports.epmd, sandbox.s3.port):
        with socket.socket() as probe, pytest.raises(OSError, match="in use"):
            probe.bind(("127.0.0.1", port))
        # A listener on every address would occupy this one too.
        with socket.socket() as probe:
            probe.bind(("127.0.0.2", port))


@pytest.mark.sandbox
def test_store_refuses_a_wrong_secret(sandbox: Sandbox) -> None:
    """Signatures are checked: the same request passes with the right secret only."""
    environ = sandbox.environ()
    bucket = environ["UTTERD_STORE__BUCKET"]
    with closing(s3_client(environ)) as client:
        client.put_object(Bucket=bucket, Key="a", Body=b"audio")
    with closing(s3_client(environ, aws_secret_access_key="wrong")) as client:
        with pytest.raises(ClientError) as refusal:
            client.get_object(Bucket=bucket, Key="a")
        assert refusal.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


@pytest.mark.sandbox
def test_second_sandbox_in_a_directory_is_refused(sandbox: Sandbox) -> None:
    """The directory has one owner, and the first one doesn't notice the attempt."""
    with pytest.raises(ConfigurationError, match="another sandbox runs in"):
        Sandbox(sandbox.directory).start()
    asyncio.run(publish(sandbox.amqp_url, "test.sandbox.owner", b"still here"))


@pytest.mark.sandbox
def test_queue_survives_restart_and_kill(neighbour: Sandbox) -> None:
    """A confirmed message in a quorum queue outlives an orderly restart and a SIGKILL."""
    asyncio.run(publish(neighbour.amqp_url, "test.kept", b"kept"))
    # A queue's declaration is on disk for certain once the node has stopped in order.
    neighbour.rabbitmq.restart()
    asyncio.run(publish(neighbour.amqp_url, "test.kept", b"kept too"))
    neighbour.rabbitmq.kill()
    assert processes_of(neighbour.rabbitmq.directory) == []
    neighbour.rabbitmq.start()
    kept = [asyncio.run(get(neighbour.amqp_url, "test.kept")) for _ in range(2)]
    assert kept == [b"kept", b"kept too"]


@pytest.mark.sandbox
def test_wait_names_the_server_that_ended(neighbour: Sandbox) -> None:
    """The death of either server is noticed."""
    os.kill(neighbour.s3.pid, signal.SIGKILL)
    assert neighbour.wait() is neighbour.s3
    neighbour.s3.restart()


@pytest.mark.sandbox
def test_stop_leaves_no_process_and_keeps_objects(neighbour: Sandbox) -> None:
    """Nothing runs after a stop, and the next start in the directory finds the data."""
    environ = neighbour.environ()
    bucket = environ["UTTERD_STORE__BUCKET"]
    with closing(s3_client(environ)) as client:
        client.put_object(Bucket=bucket, Key="kept", Body=b"audio")
    neighbour.stop()
    assert processes_of(neighbour.directory) == []
    with S3Server(neighbour.s3.directory) as server:
        environ["UTTERD_STORE__ENDPOINT_URL"] = server.endpoint_url
        with closing(s3_client(environ)) as client:
            assert client.get_object(Bucket=bucket, Key="kept")["Body"].read() == b"audio"


@pytest.mark.sandbox
def test_command_exports_settings_and_ends_on_sigterm(tmp_path: Path) -> None:
    """A shell can read what the command prints; SIGTERM ends it with status 0 and no trace."""
    command = [sys.executable, "-c", RUN_SANDBOX, tmp_path / "sandbox"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own script
        assert process.stdout is not None
        exports: dict[str, str] = {}
        for line in process.stdout:
            if line.startswith("# Ctrl-C"):
                break
            words = shlex.split(line, comments=True)
            if words:
                name, _, value = words[1].partition("=")
                exports[name] = value
        asyncio.run(publish(exports["UTTERD_BROKER__URL"], "test.command", b"hello"))
        process.terminate()
    assert process.returncode == 0
    assert processes_of(tmp_path) == []


@pytest.mark.sandbox
@pytest.mark.parametrize("guarded", [True, False])
def test_directory_is_usable_after_its_owner_was_killed(tmp_path: Path, *, guarded: bool) -> None:
    """SIGKILL of the owner takes the server along; if its guard died too, the next start does."""
    command = [sys.executable, "-c", START_S3_AND_HANG, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:  # noqa: S603 - our own script
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        if not guarded:
            os.kill(int((tmp_path / "server.log.pid").read_text()), signal.SIGKILL)
        owner.kill()
    with S3Server(tmp_path) as server:
        assert server.pid in processes_of(tmp_path)
    assert processes_of(tmp_path) == []


def test_death_during_start_shows_the_log(tmp_path: Path) -> None:
    """Whoever reads the error needn't look for the log."""
    group = ProcessGroup("the server", tmp_path / "server.log")
    group.start()
    group.spawn(["sh", "-c", "echo no room left; exit 3"], {"PATH": os.defpath})
    with pytest.raises(ConfigurationError, match=r"(?s)status 3 .*no room left"):
        group.wait_ready(lambda: False, timeout_s=10)
    group.kill()


def test_slow_start_ends_in_an_error(tmp_path: Path) -> None:
    """A server that never gets ready is given up at the time limit."""
    group = ProcessGroup("the server", tmp_path / "server.log")
    group.start()
    group.spawn(["sleep", "600"], {"PATH": os.defpath})
    with pytest.raises(ConfigurationError, match="not ready after 0 s"):
        group.wait_ready(lambda: False, timeout_s=0)
    group.kill()


def test_absent_rabbitmq_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line names the package, and nothing is left running."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("utterd.sandbox.rabbitmq._DEBIAN_SERVER", tmp_path / "absent")
    with pytest.raises(ConfigurationError, match="apt-get install rabbitmq-server"):
        RabbitNode(tmp_path).start()
    assert processes_of(tmp_path) == []


@given(st.integers(min_value=1, max_value=20))
def test_free_ports_are_distinct_and_free(count: int) -> None:
    """Every port can be bound, and none lies where outgoing connections take theirs."""
    ports = free_ports(count)
    assert len(set(ports)) == count
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in ports:
        assert port < first_ephemeral
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
