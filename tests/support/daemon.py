"""A real daemon in a process of its own."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

from support.place import PATIENCE_S, Place

LogLine = dict[str, object]


def read_log(path: Path) -> list[LogLine]:
    """All events logged so far; a whole line that is no JSON object is an error."""
    # The last line may still be under way.
    return [
        json.loads(line) for line in path.read_text().splitlines(keepends=True) if line[-1] == "\n"
    ]


class Daemon:
    """`utterd run` in a process of its own.

    Args:
        place: where it works.
        settings: environment variables on top of the place's; None takes one away.
        command: what to run instead, for Python.
    """

    def __init__(
        self,
        place: Place,
        settings: Mapping[str, str | None],
        command: Sequence[str] = ("-m", "utterd", "run"),
    ) -> None:
        place.temporary.mkdir(exist_ok=True)
        self.log_path = place.directory / f"{uuid4().hex}.log"
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, *command],
                env={
                    name: value
                    for name, value in {**place.environ(), **settings}.items()
                    if value is not None
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """The exit status, once it has ended."""
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def completed(self) -> list[str]:
        """The ids of the jobs that it has completed, as its log tells."""
        return [str(line["job_id"]) for line in self.log if line["event"] == "job_completed"]

    async def until_logged(self, event: str) -> LogLine:
        """Wait for the first line of an event."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for line in self.log:
                    if line["event"] == event:
                        return line
                await asyncio.sleep(0)

    @property
    def log(self) -> list[LogLine]:
        """All events logged so far."""
        return read_log(self.log_path)
