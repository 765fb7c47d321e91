"""Server processes that live and die together."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from utterd.errors import ConfigurationError

_POLL_S = 0.03
_VANISH_TIMEOUT_S = 10.0
_LOG_TAIL_LINES = 15
_LOG_TAIL_BYTES = 8_192

# The guard leads the group and waits for the end of a pipe that only this process holds.
# However this process ends, SIGKILL included, the pipe closes and the group goes with it.
# (PR_SET_PDEATHSIG would fire when the *thread* that started the server ends.)
_GUARD_SCRIPT = "read -r _; kill -s KILL 0"


class ProcessGroup:
    """Child processes in one process group that never outlive their parent.

    Their common output goes to `log_path`. That open file is also a lock: whatever the
    servers spawn holds it as its standard error, so whoever locks it knows that nothing
    of the group is left. The file `<log_path>.pid` names the group, for a later run that
    finds the log still locked.

    Args:
        name: what the group is, in messages.
        log_path: where the output goes, appended.
    """

    def __init__(self, name: str, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self._pid_path = log_path.with_name(f"{log_path.name}.pid")
        self._log: BinaryIO | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._members: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Opens the empty group, after the end of whatever an earlier run left behind.

        Raises:
            ConfigurationError: processes of an earlier run can't be ended.
        """
        self._log = self._lock_log()
        self._guard = subprocess.Popen(  # noqa: S603 - a constant script
            ["/bin/sh", "-c", _GUARD_SCRIPT],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            process_group=0,
        )
        self._pid_path.write_text(f"{self._guard.pid}\n", encoding="ascii")

    def spawn(
        self, arguments: Sequence[str | Path], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Starts one more process in the group, with exactly this environment."""
        if self._guard is None:
            raise RuntimeError(f"the process group of {self.name} is not started")
        # Outside the terminal's foreground group: Ctrl-C reaches only the parent, which
        # then stops the servers in order.
        process = subprocess.Popen(  # noqa: S603 - the sandbox's own servers
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=environment,
            process_group=self._guard.pid,
        )
        self._members.append(process)
        return process

    def wait_ready(self, is_ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Waits until `is_ready` says so.

        Raises:
            ConfigurationError: a process ended first, or the time is over; the message
                holds the last lines of the log.
        """
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            for member in self._members:
                if member.poll() is not None:
                    raise ConfigurationError(
                        f"{self.name} ended with status {member.returncode} while it started. "
                        + self._log_tail()
                    )
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"{self.name} was not ready after {timeout_s:g} s. " + self._log_tail()
                )
            with suppress(subprocess.TimeoutExpired):
                self._members[-1].wait(timeout=_POLL_S)

    def kill(self) -> None:
        """Ends the whole group with SIGKILL and waits until nothing of it is left.

        Does nothing when the group is not running.
        """
        if self._guard is None or self._log is None:
            return
        # Before anything is reaped: until then the group's number can't be another's.
        with suppress(ProcessLookupError):
            os.killpg(self._guard.pid, signal.SIGKILL)
        for process in (*self._members, self._guard):
            process.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._log.close()
        self._members.clear()
        self._guard = self._log = None
        self._lock_log().close()
        self._pid_path.unlink(missing_ok=True)

    def _lock_log(self) -> BinaryIO:
        log = self.log_path.open("ab")
        if _try_lock(log):
            return log
        with suppress(FileNotFoundError, ValueError, ProcessLookupError):
            os.killpg(int(self._pid_path.read_text(encoding="ascii")), signal.SIGKILL)
        deadline = time.monotonic() + _VANISH_TIMEOUT_S
        while not _try_lock(log):
            if time.monotonic() > deadline:
                log.close()
                raise ConfigurationError(
                    f"processes of an earlier {self.name} still run; find them with "
                    f"`fuser -v {self.log_path}` and end them"
                )
            time.sleep(_POLL_S)
        return log

    def _log_tail(self) -> str:
        with self.log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join([f"The end of {self.log_path}:", *lines[-_LOG_TAIL_LINES:]])


def _try_lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
