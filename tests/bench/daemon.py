"""A daemon in a process of its own, as a service manager would run it."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that consumes.

    Attributes:
        pid: of the parent.
        worker_pids: of the engine's workers.
        start_s: from the start of the process to its first consumer.
    """

    pid: int
    worker_pids: tuple[int, ...]
    start_s: float


@asynccontextmanager
async def running_daemon(environment: Mapping[str, str]) -> AsyncIterator[Daemon]:
    """Run `utterd run` for the length of the block.

    Args:
        environment: settings that point it at a sandbox.
    """
    started_s = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "utterd",
        "run",
        env={**os.environ, **environment, "UTTERD_LOG__FORMAT": "json"},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            worker_pids = await _until_consuming(process.stderr)
        start_s = time.perf_counter() - started_s
        async with asyncio.TaskGroup() as tasks:
            # A full pipe would stop the daemon.
            tasks.create_task(_discard(process.stderr), name="daemon-log")
            try:
                yield Daemon(process.pid, worker_pids, start_s)
            finally:
                process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _until_consuming(log: asyncio.StreamReader) -> tuple[int, ...]:
    worker_pids: list[int] = []
    lines: list[str] = []
    async for line in log:
        lines.append(line.decode())
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        match entry.get("event"):
            case "worker_started":
                worker_pids.append(entry["pid"])
            case "consuming":
                return tuple(worker_pids)
    raise RuntimeError(f"the daemon ended before it consumed:\n{''.join(lines)}")


async def _discard(log: asyncio.StreamReader) -> None:
    async for _ in log:
        pass
