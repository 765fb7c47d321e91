"""The two servers that utterd needs, side by side in one directory."""

import fcntl
import os
import selectors
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from utterd.errors import ConfigurationError
from utterd.sandbox import s3
from utterd.sandbox.rabbitmq import RabbitNode
from utterd.sandbox.s3 import S3Server
from utterd.sandbox.server import START_TIMEOUT_S, Server


class Sandbox:
    """A private RabbitMQ node and S3 server, reachable from this machine only.

    Objects, queues and messages stay in the directory and are there again at the next
    start, on other ports. Several sandboxes run side by side, each in its own directory.

    Args:
        directory: made when absent, kept afterwards.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.rabbitmq = RabbitNode(self.directory / "rabbitmq")
        self.s3 = S3Server(self.directory / "s3")
        self._running = ExitStack()

    @property
    def amqp_url(self) -> str:
        return self.rabbitmq.amqp_url

    @property
    def management_url(self) -> str:
        return self.rabbitmq.management_url

    def environ(self) -> dict[str, str]:
        """The settings that point utterd at this sandbox, as environment variables."""
        return {
            "UTTERD_BROKER__URL": self.amqp_url,
            "UTTERD_STORE__KIND": "s3",
            "UTTERD_STORE__ENDPOINT_URL": self.s3.endpoint_url,
            "UTTERD_STORE__BUCKET": s3.BUCKET,
            "UTTERD_STORE__REGION": s3.REGION,
            "UTTERD_STORE__ACCESS_KEY_ID": s3.ACCESS_KEY_ID,
            "UTTERD_STORE__SECRET_ACCESS_KEY": s3.SECRET_ACCESS_KEY,
        }

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Starts both servers and waits until they serve.

        Raises:
            ConfigurationError: a piece is not installed, a server doesn't start, or
                another sandbox runs in the directory.
        """
        with ExitStack() as starting:
            self._lock_directory(starting)
            # Both come up at the same time.
            for server in (self.rabbitmq, self.s3):
                starting.callback(server.stop)
                server.launch()
            for server in (self.rabbitmq, self.s3):
                server.wait_ready(timeout_s=timeout_s)
            self._running = starting.pop_all()

    def stop(self) -> None:
        """Stops both servers in an orderly way. No process is left."""
        self._running.close()

    def wait(self) -> Server:
        """Waits until one of the servers ends, which they don't do on their own.

        Returns:
            The server that ended.
        """
        with selectors.DefaultSelector() as selector, ExitStack() as stack:
            for server in (self.rabbitmq, self.s3):
                process_fd = os.pidfd_open(server.pid)
                stack.callback(os.close, process_fd)
                selector.register(process_fd, selectors.EVENT_READ, server)
            ((key, _), *_) = selector.select()
            ended: Server = key.data
            return ended

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

    def _lock_directory(self, stack: ExitStack) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        lock = stack.enter_context((self.directory / "lock").open("ab"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                f"another sandbox runs in {self.directory}: stop it, or choose another directory"
            ) from None
