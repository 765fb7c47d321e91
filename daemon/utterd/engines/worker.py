"""A worker process: loads one engine and speaks what the daemon sends.

    python -m utterd.engines.worker SOCKET_FD ENGINE BUNDLE CONCURRENCY THREADS OPTIONS

OPTIONS are the `EngineOptions` as JSON.

It ends when the daemon closes the socket or dies. Signals are the daemon's business: systemd's
stop reaches every process of the service, and work in hand must finish.
"""

import ctypes
import faulthandler
import os
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BufferedRWPair

from utterd.engines.protocol import (
    CancelledByCallerError,
    CancelToken,
    Engine,
    EngineOptions,
    Utterance,
)
from utterd.engines.registry import engine_module
from utterd.engines.wire import Frame, read_frame, write_frame
from utterd.errors import ConfigurationError, EngineFailedError, JobError

_PR_SET_PDEATHSIG = 1


class Worker:
    """Serves one engine to one daemon.

    Args:
        engine: loaded.
        stream: the socket to the daemon, for both directions.
        concurrency: how many requests to work on at once.
    """

    def __init__(self, engine: Engine, stream: BufferedRWPair, concurrency: int) -> None:
        self._engine = engine
        self._stream = stream
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="speak")
        self._tokens: dict[int, CancelToken] = {}
        self._write_lock = threading.Lock()

    def serve(self) -> None:
        """Answer requests until the daemon is gone."""
        self._send(Frame({"ready": True}))
        while (frame := read_frame(self._stream)) is not None:
            match frame.header:
                case {"speak": int(request), "utterance": dict(fields)}:
                    token = self._tokens[request] = CancelToken()
                    self._pool.submit(self._answer, request, Utterance(**fields), token)  # type: ignore[arg-type]
                case {"cancel": int(request)}:
                    if token_in_use := self._tokens.get(request):
                        token_in_use.cancel()

    def _answer(self, request: int, utterance: Utterance, cancel: CancelToken) -> None:
        try:
            frame = self._speak(request, utterance, cancel)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an engine raises is this request's answer
            # The message of a foreign exception may quote the text; its type never does.
            failure = EngineFailedError(
                f"the engine raised {type(error).__name__}. Send the job again; if it fails again,"
                " report the voice and the engine's version"
            )
            frame = _failed(request, failure)
        finally:
            self._tokens.pop(request, None)
        self._send(frame)

    def _speak(self, request: int, utterance: Utterance, cancel: CancelToken) -> Frame:
        try:
            take = self._engine.speak(utterance, cancel)
        except CancelledByCallerError:
            return Frame({"request": request, "cancelled": True})
        except JobError as error:
            return _failed(request, error)
        return Frame(
            {"request": request, "faults": list(take.faults)},
            take.pcm.astype("<f4", copy=False).tobytes(),
        )

    def _send(self, frame: Frame) -> None:
        with self._write_lock:
            write_frame(self._stream, frame)


def _failed(request: int, error: JobError) -> Frame:
    return Frame({"request": request, "error": error.info().model_dump(mode="json")})


def die_with_parent() -> None:
    """Have the kernel kill this process when the daemon dies (prctl(2)).

    A worker that hangs in native code does not notice that its socket was closed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _load(name: str, bundle: str, options: EngineOptions, threads: int) -> Engine:
    """Load the engine that the daemon plans for, and no other.

    Raises:
        ConfigurationError: it can't be loaded, or its files have changed since the daemon started:
            audio would be kept under the key of what they were.
    """
    module = engine_module(name)
    engine = module.load(options, threads=threads)
    if module.describe(options).bundle != bundle:
        raise ConfigurationError(
            f"the files of {name} have changed since the daemon started: put them back, or restart"
            " the daemon to speak with the new ones"
        )
    return engine


def main(arguments: list[str]) -> None:
    descriptor, engine_name, bundle, concurrency, threads, options = arguments
    die_with_parent()
    # A library that crashes says where.
    faulthandler.enable()
    for interruption in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(interruption, signal.SIG_IGN)
    # What an engine prints must not mix with what the daemon's command prints for programs.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with socket.socket(fileno=int(descriptor)) as connection:
        # A process that the engine starts must not keep the socket open after this one.
        connection.set_inheritable(False)
        stream = connection.makefile("rwb")
        try:
            engine = _load(engine_name, bundle, EngineOptions.from_json(options), int(threads))
        except ConfigurationError as error:
            with suppress(BrokenPipeError):
                write_frame(stream, Frame({"refused": str(error)}))
            sys.exit(1)
        # The daemon may be gone by the time the model is loaded.
        with suppress(BrokenPipeError):
            Worker(engine, stream, int(concurrency)).serve()
    # Not sys.exit: a request that is still being spoken has nobody to hear it.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
