"""Tells systemd how the service fares, by the protocol of sd_notify(3)."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from typing import Self

import structlog

from utterd.lifecycle import first_of
from utterd.ops.status import StatusSource

log = structlog.get_logger(__name__)

STATUS_INTERVAL_S = 1.0
EXTENSION_S = 30.0
"""How much longer than now a start or a stop may take, each time that it says so."""

_MICRO = 1e-6


class Notifier:
    """Sends notifications; without a socket, as in a terminal, it sends nothing.

    Args:
        address: of the service manager's datagram socket; an abstract one begins with `@`.
    """

    def __init__(self, address: str | None) -> None:
        self._address = "\0" + address[1:] if address and address[0] == "@" else address

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        return cls(environment.get("NOTIFY_SOCKET"))

    @property
    def is_heard(self) -> bool:
        """Whether there is a service manager to tell."""
        return self._address is not None

    def ready(self, sentence: str) -> None:
        """The service has started."""
        self._send("READY=1", f"STATUS={sentence}")

    def status(self, sentence: str) -> None:
        self._send(f"STATUS={sentence}")

    def watchdog(self) -> None:
        """The service makes progress."""
        self._send("WATCHDOG=1")

    def reloading(self, monotonic_usec: int) -> None:
        """The settings are being read again; `done_reloading` follows."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={monotonic_usec}")

    def done_reloading(self) -> None:
        self._send("READY=1")

    def stopping(self, sentence: str) -> None:
        self._send("STOPPING=1", f"STATUS={sentence}")

    def extend_timeout(self, by_s: float) -> None:
        """The stop goes on for up to this long before systemd may call it hung."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(by_s / _MICRO)}")

    def _send(self, *assignments: str) -> None:
        if self._address is None:
            return
        # A newline would begin another assignment.
        lines = "\n".join(assignment.replace("\n", " ") for assignment in assignments)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(lines.encode(), self._address)
        except OSError as error:
            # Telling how the service fares must not be what ends it.
            log.warning("systemd_not_told", reason=error.strerror or str(error))


def watchdog_interval_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """How often systemd expects a sign of life from this process, in seconds; None for never."""
    usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or (pid and pid != str(os.getpid())):
        return None
    return int(usec) * _MICRO or None


async def keep_informed(
    notifier: Notifier,
    status: StatusSource,
    is_alive: Callable[[], bool],
    *,
    consuming: asyncio.Event,
    stop: asyncio.Event,
    watchdog_s: float | None,
    interval_s: float = STATUS_INTERVAL_S,
) -> None:
    """Tell systemd how the daemon fares, until cancelled.

    The start and the stop may take as long as they need, as long as somebody works on them: both
    ask for more time again and again.

    Args:
        notifier: to tell by.
        status: tells what the daemon does.
        is_alive: whether the daemon makes progress; while it does not, the watchdog hears nothing.
        consuming: set when jobs are taken; the service is ready at the first time.
        stop: set when the daemon has been told to stop.
        watchdog_s: the longest silence that systemd allows; None for any.
        interval_s: between looks at the status.
    """
    pause_s = interval_s if watchdog_s is None else min(interval_s, watchdog_s / 3)

    async def tell_until(*events: asyncio.Event, needs_time: bool) -> None:
        told = None
        while not any(event.is_set() for event in events):
            if watchdog_s is not None and is_alive():
                notifier.watchdog()
            if needs_time:
                notifier.extend_timeout(EXTENSION_S)
            if (sentence := status().sentence) != told:
                notifier.status(sentence)
                told = sentence
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await first_of(*events)

    await tell_until(consuming, stop, needs_time=True)
    if not stop.is_set():
        notifier.ready(status().sentence)
        await tell_until(stop, needs_time=False)
    notifier.stopping(status().sentence)
    await tell_until(asyncio.Event(), needs_time=True)
