"""One worker process, as the daemon sees it."""

import asyncio
import contextlib
import itertools
import signal
import socket
import sys
from asyncio.subprocess import Process
from dataclasses import asdict
from typing import Self

import numpy as np
import structlog

from utterd.engines.protocol import EngineInfo, EngineOptions, Take, Utterance
from utterd.engines.wire import Frame, receive_frame
from utterd.engines.worker_environment import worker_environment
from utterd.errors import (
    ConfigurationError,
    EngineFailedError,
    NotNowError,
    WorkerDiedError,
    error_from,
)
from utterd.ops.cpu import WorkerPlan
from utterd.ops.memory import let_die_first
from utterd_schemas.errors import ErrorInfo

log = structlog.get_logger(__name__)

# Room for a minute of samples between two turns of the event loop.
_STREAM_LIMIT_BYTES = 8 * 1024 * 1024
_STOP_GRACE_S = 2.0


class WorkerProcess:
    """A running `utterd.engines.worker`. Made by `start`; `attend` must run while it is used."""

    def __init__(
        self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Take]] = {}
        self.is_alive = True

    @classmethod
    async def start(
        cls, engine: EngineInfo, plan: WorkerPlan, options: EngineOptions, *, timeout_s: float
    ) -> Self:
        """Spawn a process and wait until its model is loaded.

        Raises:
            ConfigurationError: it ended.
            NotNowError: the system starts no process, or it was killed, or not ready within
                `timeout_s`.
        """
        try:
            worker = await cls._spawn(engine, plan, options)
        except OSError as error:
            raise NotNowError(
                f"the system starts no worker of {engine.name} ({error.strerror or error}): free"
                " memory, or raise the limits on processes and open files"
            ) from error
        try:
            await worker.wait_until_ready(engine.name, timeout_s)
        except BaseException:
            # A worker that still loads its model does not notice a closed socket.
            worker.kill()
            await worker.stop()
            raise
        return worker

    @classmethod
    async def _spawn(cls, engine: EngineInfo, plan: WorkerPlan, options: EngineOptions) -> Self:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours, limit=_STREAM_LIMIT_BYTES)
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    # Not from the working directory: a user's random.py is not the library's.
                    "-P",
                    "-m",
                    "utterd.engines.worker",
                    str(theirs.fileno()),
                    engine.name,
                    engine.bundle,
                    str(plan.concurrency),
                    str(plan.threads),
                    options.to_json(),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    # Ctrl-C in a terminal is for the daemon alone.
                    start_new_session=True,
                    env=worker_environment(plan),
                )
            except BaseException:
                writer.close()
                raise
        # Now, for it grows already while it loads.
        let_die_first(process.pid)
        return cls(process, reader, writer)

    async def wait_until_ready(self, engine: str, timeout_s: float) -> None:
        """Wait for the worker's first word, once.

        Raises:
            ConfigurationError: it can't load its model, or ended.
            NotNowError: it was killed, or not ready within `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                first_word = await receive_frame(self._reader)
        except TimeoutError:
            raise NotNowError(
                f"the {engine} worker did not load its model within {timeout_s:g} s: give it more"
                " time with engine.start_timeout_s, or start fewer workers"
            ) from None
        if first_word is not None and "refused" not in first_word.header:
            return
        await self.stop()
        if first_word is not None:
            raise ConfigurationError(str(first_word.header["refused"]))
        if self.exit_status == -signal.SIGKILL:
            raise NotNowError(
                f"the {engine} worker was killed while it loaded its model, as the kernel does"
                " for want of memory: free some, raise the service's MemoryMax, or start fewer"
                " workers with engine.workers"
            )
        raise ConfigurationError(
            f"the {engine} worker did not load its model (exit status {self.exit_status})."
            " What it printed stands above; check that the engine's package is whole"
            " (pip install --force-reinstall), or its bundle (utterd bundle verify)"
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def pending(self) -> int:
        """Requests without an answer."""
        return len(self._pending)

    @property
    def exit_status(self) -> int | None:
        return self._process.returncode

    def submit(self, utterance: Utterance) -> tuple[int, asyncio.Future[Take]]:
        """Send a request; returns its number and the answer to come."""
        number = next(self._numbers)
        answer: asyncio.Future[Take] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        self._writer.write(Frame({"speak": number, "utterance": asdict(utterance)}).encode())
        return number, answer

    def cancel(self, number: int, *, grace_s: float) -> None:
        """Ask the engine to drop a request; kill the process when it does not within `grace_s`."""
        if number not in self._pending:
            return
        self._writer.write(Frame({"cancel": number}).encode())
        asyncio.get_running_loop().call_later(grace_s, self._kill_if_pending, number)

    def _kill_if_pending(self, number: int) -> None:
        if number in self._pending:
            log.warning("worker_killed", pid=self.pid, reason="cancelled request did not end")
            self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def attend(self) -> None:
        """Deliver answers until the process closes its end of the socket."""
        try:
            while (frame := await receive_frame(self._reader)) is not None:
                self._deliver(frame)
        finally:
            self.is_alive = False

    def _deliver(self, frame: Frame) -> None:
        number = frame.header["request"]
        answer = self._pending.pop(number, None) if isinstance(number, int) else None
        if answer is None or answer.done():
            return
        if "error" in frame.header:
            answer.set_exception(error_from(ErrorInfo.model_validate(frame.header["error"])))
        elif frame.header.get("cancelled"):
            answer.set_exception(
                EngineFailedError("the engine gave up on its own accord. Send the job again")
            )
        else:
            faults = frame.header.get("faults")
            answer.set_result(
                Take(
                    np.frombuffer(frame.payload, dtype="<f4"),
                    tuple(map(str, faults)) if isinstance(faults, list) else (),
                )
            )

    async def stop(self) -> None:
        """Close the socket, which ends the process, kill it if it stays, and fail what it had."""
        self._writer.close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_GRACE_S):
                    await self._process.wait()
        finally:
            # Also when this task is cancelled while it waits.
            self.kill()
            try:
                await self._process.wait()
            finally:
                self._fail_pending()

    def _fail_pending(self) -> None:
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(
                    WorkerDiedError(
                        "the worker process that spoke this job ended with status"
                        f" {self.exit_status}. Send the job again"
                    )
                )
        self._pending.clear()
