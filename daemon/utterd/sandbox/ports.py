"""TCP ports that nobody uses."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

from utterd.errors import ConfigurationError

LOOPBACK = "127.0.0.1"

_FIRST_PORT = 15_000
_USUAL_EPHEMERAL_START = 32_768
_ATTEMPTS = 200


def free_ports(count: int) -> tuple[int, ...]:
    """Picks distinct loopback ports that are free now.

    They lie below the kernel's ephemeral range. A port inside it can be taken by any
    outgoing connection while its server restarts, even by a client that retries this
    very port: TCP lets it connect to itself.

    Raises:
        ConfigurationError: nearly every port of the machine is in use.
    """
    end = _ephemeral_start()
    ports: list[int] = []
    with ExitStack() as stack:
        for _ in range(_ATTEMPTS):
            if len(ports) == count:
                break
            port = random.SystemRandom().randrange(min(_FIRST_PORT, end // 2), end)
            # Each socket stays bound until all are found, so none is found twice.
            probe = stack.enter_context(socket.socket())
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            ports.append(port)
    if len(ports) < count:
        raise ConfigurationError(
            f"no {count} free TCP ports below {end} on {LOOPBACK}: stop some local servers"
        )
    return tuple(ports)


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
    except OSError:
        return _USUAL_EPHEMERAL_START
    # A machine that hands out every port leaves nothing below its range.
    return max(int(text.split()[0]), 2 * 1024)
