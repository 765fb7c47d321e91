"""`utterd sandbox`: the servers in the foreground, until a signal."""

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from utterd.sandbox.sandbox import Sandbox


def run_sandbox(directory: Path, *, stream: TextIO) -> int:
    """Runs a sandbox until SIGINT or SIGTERM; call it in the main thread.

    What it prints can be read by a shell: `export` lines that point utterd at the
    sandbox, the rest as comments.

    Returns:
        The exit status: 0 after a signal, 1 when a server ended on its own.

    Raises:
        ConfigurationError: a piece is not installed, a server doesn't start, or another
            sandbox runs in the directory.
    """
    try:
        with _signals_interrupt(), Sandbox(directory) as sandbox:
            environment = sandbox.directory / "environment"
            environment.write_text(_exports(sandbox), encoding="utf-8")
            stream.write(_describe(sandbox, environment))
            stream.flush()
            ended = sandbox.wait()
            stream.write(f"# {ended.name} ended on its own; its log is {ended.log_path}\n")
            stream.flush()
            return 1
    except KeyboardInterrupt:
        return 0


def _describe(sandbox: Sandbox, environment: Path) -> str:
    return _exports(sandbox) + "\n".join(
        [
            f"# In another terminal: . {shlex.quote(str(environment))}",
            f"# RabbitMQ's management: {sandbox.management_url}",
            f"# Data and logs: {sandbox.directory}",
            "# Ctrl-C stops both servers.",
            "",
        ]
    )


def _exports(sandbox: Sandbox) -> str:
    return "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in sandbox.environ().items()
    )


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, also in a shell's background job.

    A second signal interrupts the stop; the servers' guard then ends them by force.
    """
    signals = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, signal.default_int_handler) for number in signals}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
