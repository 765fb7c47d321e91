"""Where the measurements ran."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from aio_pika.abc import AbstractConnection

from utterd.ops.cpu import usable_cores


def machine_facts(connection: AbstractConnection) -> list[str]:
    """One line a fact.

    Args:
        connection: to the broker whose version is told.
    """
    libraries = ", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "hibari-tts"))
    clients = ", ".join(f"{name} {version(name)}" for name in ("aio-pika", "boto3", "numpy"))
    return [
        f"{usable_cores():g} cores, {_cpu_model()}, {_memory_gib():.0f} GiB of memory",
        f"Linux {platform.release()}, Python {platform.python_version()}",
        f"{libraries}, {clients}",
        f"RabbitMQ {_broker_version(connection)}",
        f"load average before the first measurement: {os.getloadavg()[0]:.1f}",
    ]


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def _broker_version(connection: AbstractConnection) -> str:
    transport = connection.transport
    properties = transport.connection.server_properties if transport else {}
    value = properties.get("version", b"of unknown version")
    return value.decode() if isinstance(value, bytes) else str(value)
