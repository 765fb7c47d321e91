"""The life of a sandbox's server: launched, ready, stopped or killed."""

import subprocess
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from utterd.sandbox.process_group import ProcessGroup

START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0


class Server(ABC):
    """A server in a process group of its own.

    Ports are chosen once and stay the same when the server is started again. A server that
    a killed process left behind in the directory is ended first; so a directory belongs to
    one object at a time, which `Sandbox` sees to.

    Args:
        directory: holds its data and log; made when absent, kept afterwards.
    """

    name: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self._group = ProcessGroup(self.name, self.directory / "server.log")
        self._process: subprocess.Popen[bytes] | None = None
        self._was_ready = False

    @abstractmethod
    def _spawn(self, group: ProcessGroup) -> subprocess.Popen[bytes]:
        """Writes what the server needs and starts its processes in `group`.

        Raises:
            ConfigurationError: it is not installed.
        """

    @abstractmethod
    def _is_ready(self) -> bool:
        """Asks the server whether it serves; never raises because it doesn't yet."""

    @property
    def log_path(self) -> Path:
        return self._group.log_path

    @property
    def pid(self) -> int:
        """The process id of the server.

        Raises:
            RuntimeError: it is not started.
        """
        if self._process is None:
            raise RuntimeError(f"{self.name} is not started")
        return self._process.pid

    def launch(self) -> None:
        """Starts the server without waiting for it.

        Raises:
            ConfigurationError: it is not installed.
            RuntimeError: it runs already.
        """
        if self._process is not None:
            raise RuntimeError(f"{self.name} runs already")
        self._was_ready = False
        # Only its owner may look inside: passwords and Erlang's cookie are there.
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._group.start()
        try:
            self._process = self._spawn(self._group)
        except BaseException:
            self._group.kill()
            raise

    def wait_ready(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Waits until a launched server serves.

        Raises:
            ConfigurationError: it ended or the time is over; the message holds the end
                of its log.
        """
        self._group.wait_ready(self._is_ready, timeout_s=timeout_s)
        self._was_ready = True

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Starts the server and waits until it serves.

        Raises:
            ConfigurationError: it is not installed or doesn't start.
        """
        self.launch()
        try:
            self.wait_ready(timeout_s=timeout_s)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stops the server in an orderly way, by force after a while. No process is left."""
        if self._process is None:
            return
        if not self._was_ready:
            # RabbitMQ heeds no signal while it boots, and holds nothing yet that could be lost.
            self.kill()
            return
        self._process.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_STOP_TIMEOUT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the server with SIGKILL, as a power cut would. No process is left."""
        self._group.kill()
        self._process = None

    def restart(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Stops the server in an orderly way and starts it again on the same ports."""
        self.stop()
        self.start(timeout_s=timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
