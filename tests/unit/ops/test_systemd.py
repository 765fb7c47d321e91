import asyncio
import os
import socket
from contextlib import asynccontextmanager

import pytest

from utterd.ops.status import State, Status
from utterd.ops.systemd import Notifier, keep_informed, watchdog_interval_s

FENCE_S = 10.0


@pytest.fixture(params=["file", "abstract"])
def manager(request, tmp_path):
    """The service manager's socket, and the address that it gives its services."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as receiver:
        if request.param == "file":
            address = str(tmp_path / "notify")
            receiver.bind(address)
        else:
            name = f"utterd-test-{os.getpid()}-{id(receiver)}"
            receiver.bind(f"\0{name}")
            address = f"@{name}"
        yield Manager(receiver, address)


class Manager:
    def __init__(self, receiver, address):
        self._receiver, self.address = receiver, address
        self.heard = []

    async def hear(self, assignment):
        """Wait until a message holds it."""
        async with asyncio.timeout(FENCE_S):
            while not any(assignment in message for message in self.heard):
                message = await asyncio.get_running_loop().sock_recv(self._receiver, 4096)
                self.heard.append(message.decode())


class Daemon:
    """What is told of, changed by the test."""

    def __init__(self):
        self.sentence, self.is_alive = "starting: loading the engine", True
        self.consuming, self.stop = asyncio.Event(), asyncio.Event()

    def status(self):
        return Status(
            state=State.STARTING, sentence=self.sentence, slots=1, busy=0, waiting=0, in_hand=0
        )


@asynccontextmanager
async def informed(manager, daemon, *, watchdog_s=None):
    async with asyncio.TaskGroup() as tasks:
        informing = tasks.create_task(
            keep_informed(
                Notifier(manager.address),
                daemon.status,
                lambda: daemon.is_alive,
                consuming=daemon.consuming,
                stop=daemon.stop,
                watchdog_s=watchdog_s,
                interval_s=0.01,
            )
        )
        yield
        informing.cancel()


async def test_a_service_is_ready_when_it_first_takes_jobs(manager):
    """Until then it asks for time, and says what it waits for; then it says so once."""
    daemon = Daemon()
    async with informed(manager, daemon):
        await manager.hear("EXTEND_TIMEOUT_USEC=30000000")
        await manager.hear("STATUS=starting: loading the engine")
        assert not any("READY=1" in message for message in manager.heard)
        daemon.sentence = "consuming, 0 of 1 busy"
        daemon.consuming.set()
        await manager.hear("READY=1\nSTATUS=consuming, 0 of 1 busy")
        manager.heard.clear()
        daemon.sentence = "paused: no bucket"
        await manager.hear("STATUS=paused: no bucket")
        assert not any("READY=1" in message for message in manager.heard)


async def test_a_stop_is_announced_and_gets_the_time_that_it_needs(manager):
    """Jobs in hand may take longer than the service manager's patience."""
    daemon = Daemon()
    daemon.consuming.set()
    async with informed(manager, daemon):
        await manager.hear("READY=1")
        daemon.sentence = "draining: 2 jobs in hand"
        daemon.stop.set()
        await manager.hear("STOPPING=1\nSTATUS=draining: 2 jobs in hand")
        manager.heard.clear()
        await manager.hear("EXTEND_TIMEOUT_USEC=30000000")


async def test_a_service_that_is_stopped_before_it_was_ready_never_says_that_it_is(manager):
    """Otherwise what waits for it would start."""
    daemon = Daemon()
    daemon.stop.set()
    async with informed(manager, daemon):
        await manager.hear("STOPPING=1")
    assert not any("READY=1" in message for message in manager.heard)


async def test_the_watchdog_hears_nothing_of_a_daemon_without_progress(manager):
    """The loop turns, the status goes on, and systemd restarts the service all the same."""
    daemon = Daemon()
    daemon.consuming.set()
    async with informed(manager, daemon, watchdog_s=0.03):
        await manager.hear("WATCHDOG=1")
        daemon.is_alive = False
        daemon.sentence = "one"
        await manager.hear("STATUS=one")
        manager.heard.clear()
        for sentence in ("two", "three", "four"):
            daemon.sentence = sentence
            await manager.hear(f"STATUS={sentence}")
        assert not any("WATCHDOG=1" in message for message in manager.heard)


async def test_a_sentence_can_hold_no_other_assignment(manager):
    """What a broker or a bucket said may have lines."""
    Notifier(manager.address).status("bad\nREADY=1")
    await manager.hear("STATUS=bad")
    assert manager.heard == ["STATUS=bad READY=1"]


def test_without_a_service_manager_nothing_is_sent():
    """As in a terminal."""
    Notifier.from_environment({}).ready("here")


def test_a_service_manager_that_is_gone_does_not_end_the_service(tmp_path):
    """Telling how it fares is not what the daemon is for."""
    Notifier(str(tmp_path / "gone")).ready("here")


@pytest.mark.parametrize(
    ("environment", "interval_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "20000000"}, 20.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": str(os.getpid())}, 20.0),
        ({"WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_for_the_process_that_systemd_named(environment, interval_s):
    """A worker inherits the variables, but not the duty."""
    assert watchdog_interval_s(environment) == interval_s
