"""The broker's version, and what depends on it."""

import re

from aio_pika.abc import AbstractConnection

Version = tuple[int, int]
"""Major and minor; nothing depends on patches."""

FORGIVES_NACKS: Version = (4, 3)
"""From here on, quorum queues count what failed and not what was politely given back.

Source: RabbitMQ 4.3's release notes. `basic.reject` and a lost channel count towards the delivery
limit as before, `basic.nack` with `requeue` does not."""


def version_of(connection: AbstractConnection) -> str:
    """The version as the broker gave it when we connected, or `unknown`."""
    transport = connection.transport
    properties = transport.connection.server_properties if transport else {}
    return str(properties.get("version", "unknown"))


def parse_version(version: str) -> Version | None:
    """Major and minor of a version such as `3.10.8`; None for anything else."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def counts_nacks(version: str) -> bool:
    """Whether a polite return uses up one of a job's deliveries; assumed of unknown versions."""
    number = parse_version(version)
    return number is None or number < FORGIVES_NACKS
