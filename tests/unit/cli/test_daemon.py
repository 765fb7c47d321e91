"""What a daemon leaves behind that can't start."""

import socket

import pytest

from utterd.cli.daemon import last_word
from utterd.errors import ConfigurationError
from utterd.ops.systemd import Notifier


@pytest.fixture
def manager(tmp_path):
    """The service manager's socket, and who tells it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        yield receiver, Notifier(str(tmp_path / "notify"))


def test_the_status_says_why_a_daemon_stays_down(manager):
    """Also when the reason comes out of a task group; else it would still say that it starts."""
    receiver, notifier = manager
    error = ConfigurationError("the broker's topology differs")
    with pytest.raises(ExceptionGroup), last_word(notifier):
        raise ExceptionGroup("tasks", [error])
    assert receiver.recv(4096) == b"STATUS=stopped: the broker's topology differs"


def test_other_ends_keep_the_last_status(manager):
    """The service is started again, and the message of a foreign exception may hold a text."""
    receiver, notifier = manager
    with pytest.raises(ValueError, match="text"), last_word(notifier):
        raise ValueError("a text")
    with pytest.raises(BlockingIOError):
        receiver.recv(4096)
