"""A private RabbitMQ node."""

import base64
import http.client
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import ClassVar

from utterd.errors import ConfigurationError
from utterd.sandbox.ports import LOOPBACK, free_ports
from utterd.sandbox.process_group import ProcessGroup
from utterd.sandbox.server import Server

USER = "utterd"
PASSWORD = "utterd-sandbox"  # noqa: S105 - the node listens on loopback only and guards nothing

# Its own epmd keeps the name apart from every other node's, so that it can be the same in
# every directory; the data directory carries it.
_NODE_NAME = "utterd-sandbox@localhost"

# The command of this name that Debian puts on PATH starts the system's node only.
_DEBIAN_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

_ERLANG_ARGUMENTS = (
    "+S 2:2"
    " -kernel inet_dist_use_interface {127,0,0,1}"
    # The management agent sits out a five-second timeout at every stop; what is confirmed
    # is on disk by then.
    " -kernel shutdown_timeout 1000"
)

_AMQP_HEADER = b"AMQP\x00\x00\x09\x01"
_METHOD_FRAME_ON_CHANNEL_0 = b"\x01\x00\x00"
_CONNECTION_START = b"\x00\x0a\x00\x0a"
_PROBE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class RabbitPorts:
    amqp: int
    management: int
    distribution: int
    epmd: int


class RabbitNode(Server):
    """One RabbitMQ node of our own: name, ports, data, cookie and epmd.

    A node that the system runs is neither used nor touched. The virtual host is `/`; the
    account, `USER` and `PASSWORD`, is an administrator.
    """

    name: ClassVar[str] = "RabbitMQ"

    @cached_property
    def ports(self) -> RabbitPorts:
        return RabbitPorts(*free_ports(4))

    @property
    def amqp_url(self) -> str:
        return f"amqp://{USER}:{PASSWORD}@{LOOPBACK}:{self.ports.amqp}/"

    @property
    def management_url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.management}"

    def _spawn(self, group: ProcessGroup) -> subprocess.Popen[bytes]:
        server = find_rabbitmq_server()
        epmd = _find_epmd()
        self._write_configuration()
        environment = self._environment()
        group.spawn([epmd], environment)
        return group.spawn([server], environment)

    def _is_ready(self) -> bool:
        # The account and the management listener are there before AMQP's listener; to ask
        # for all three costs nothing and holds whatever the order.
        return _answers_amqp(self.ports.amqp) and _knows_account(self.ports.management)

    def _write_configuration(self) -> None:
        (self.directory / "rabbitmq.conf").write_text(
            "\n".join(
                [
                    f"listeners.tcp.loopback = {LOOPBACK}:{self.ports.amqp}",
                    f"management.tcp.ip = {LOOPBACK}",
                    f"management.tcp.port = {self.ports.management}",
                    f"default_user = {USER}",
                    f"default_pass = {PASSWORD}",
                    # Absolute limits, so that a Raspberry Pi and a server behave alike.
                    "vm_memory_high_watermark.absolute = 512MB",
                    "disk_free_limit.absolute = 50MB",
                    "raft.wal_max_size_bytes = 67108864",
                    "",
                ]
            ),
            encoding="ascii",
        )
        (self.directory / "enabled_plugins").write_text(
            "[rabbitmq_management].\n", encoding="ascii"
        )

    def _environment(self) -> dict[str, str]:
        """Everything that the node learns: no RABBITMQ_* or ERL_* of the caller's leaks in."""
        directory = self.directory
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(directory),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(self.ports.epmd),
            "RABBITMQ_NODENAME": _NODE_NAME,
            "RABBITMQ_DIST_PORT": str(self.ports.distribution),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            # Absent files instead of the system's in /etc/rabbitmq.
            "RABBITMQ_CONFIG_FILES": str(directory / "conf.d"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "config"),
            "RABBITMQ_PID_FILE": str(directory / "rabbitmq.pid"),
            "RABBITMQ_SCHEDULER_BIND_TYPE": "u",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG_ARGUMENTS,
            # The start script then becomes the node instead of waiting for it.
            "RUNNING_UNDER_SYSTEMD": "true",
        }


def find_rabbitmq_server() -> Path:
    """Finds the script that starts a node.

    Raises:
        ConfigurationError: RabbitMQ is not installed.
    """
    if _DEBIAN_SERVER.exists():
        return _DEBIAN_SERVER
    found = shutil.which("rabbitmq-server")
    if found is None:
        raise ConfigurationError(
            "RabbitMQ is not installed: `apt-get install rabbitmq-server`, or put "
            "`rabbitmq-server` on PATH"
        )
    return Path(found)


def _find_epmd() -> Path:
    on_path = shutil.which("epmd")
    if on_path is not None:
        return Path(on_path)
    erl = shutil.which("erl")
    # An Erlang outside the system's folders keeps it beside the virtual machine.
    beside = sorted(Path(erl).resolve().parent.parent.glob("erts-*/bin/epmd")) if erl else []
    if not beside:
        raise ConfigurationError(
            "Erlang's `epmd` is not on PATH: `apt-get install rabbitmq-server` brings it"
        )
    return beside[-1]


def _answers_amqp(port: int) -> bool:
    """Whether the protocol header is answered with Connection.Start (AMQP 0-9-1, 2.2.4)."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=_PROBE_TIMEOUT_S) as connection:
            connection.sendall(_AMQP_HEADER)
            with connection.makefile("rb") as stream:
                answer = stream.read(11)
    except OSError:
        return False
    return answer.startswith(_METHOD_FRAME_ON_CHANNEL_0) and answer.endswith(_CONNECTION_START)


def _knows_account(management_port: int) -> bool:
    credentials = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    connection = http.client.HTTPConnection(LOOPBACK, management_port, timeout=_PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/api/whoami", headers={"Authorization": f"Basic {credentials}"})
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
