import asyncio

import pytest
from structlog.testing import capture_logs

from utterd.broker.hold_off import HoldOff
from utterd.environment import Environment
from utterd.interruptions import Interruptions
from utterd.monitor import Monitor
from utterd.ops.metrics import Metrics
from utterd.ops.status import State


class Slots:
    slots, busy, waiting = 2, 1, 3
    pids = (11, 12)


@pytest.fixture
def monitor():
    return Monitor(
        slots=Slots(),
        environment=Environment(),
        interruptions=Interruptions(),
        stop=asyncio.Event(),
        broker="mq:5672",
        lanes=("interactive", "batch"),
        max_work_s=60.0,
        hold_off=HoldOff(),
    )


async def test_a_daemon_goes_through_its_states(monitor):
    """Starting, connecting, consuming, paused, draining: each said in words."""
    assert monitor.state is State.STARTING
    monitor.is_loaded = True
    assert monitor.state is State.CONNECTING
    assert not monitor.status().is_ready
    monitor.consuming.set()
    assert monitor.status().is_ready
    monitor.consuming.clear()
    holding = asyncio.ensure_future(monitor.hold_off.sleep(60.0))
    await asyncio.sleep(0)
    assert monitor.state is State.HOLDING_OFF
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    assert monitor.state is State.CONNECTING
    monitor.environment.report("store", "bucket speech answers 403")
    status = monitor.status()
    assert status.sentence == "paused: bucket speech answers 403"
    assert status.checks["store"] is False
    assert status.checks["publishing"] is True
    monitor.stop.set()
    assert monitor.state is State.DRAINING


async def test_only_lanes_count_as_backlog(monitor, monkeypatch):
    """The dead wait for a person, not for a slot."""
    looks = []
    seen = asyncio.Event()

    async def look(queues):
        if looks:
            seen.set()
            await asyncio.Future()
        looks.append(queues)
        return {"interactive": 4, "batch": 10, "dead": 7}

    monkeypatch.setattr("utterd.monitor.QUEUE_INTERVAL_S", 0.0)
    monitor.is_loaded = True
    monitor.consuming.set()
    metrics = Metrics()
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(monitor.watch_queues(look, ("interactive",), metrics))
        await seen.wait()
        watching.cancel()
    assert looks == [("interactive",)]
    assert monitor.status().sentence == "consuming, 1 of 2 busy, 14 queued"
    depth = metrics.registry.get_sample_value("utterd_queue_messages", {"queue": "dead"})
    assert depth == 7


async def test_work_that_has_hung_needs_a_restart(monitor):
    """The watchdog and the liveness check ask for it."""
    assert monitor.is_alive()
    with monitor.interruptions.work():
        assert monitor.is_alive()
        monitor.max_work_s = -1.0
        assert not monitor.is_alive()
    assert monitor.is_alive()


async def test_work_that_waits_for_what_is_broken_needs_no_restart(monitor):
    """A restart would not bring the broker back, and would lose the audio in hand."""
    monitor.max_work_s = -1.0
    with monitor.interruptions.work():
        monitor.environment.report("publishing", "the broker is away")
        assert monitor.is_alive()


async def test_the_log_tells_once_that_work_has_hung(monitor, monkeypatch):
    """What the watchdog then does leaves no reason of its own."""
    looks = 0
    enough = asyncio.Event()
    is_alive = Monitor.is_alive

    def look(self):
        nonlocal looks
        looks += 1
        if looks == 3:
            enough.set()
        return is_alive(self)

    monkeypatch.setattr(Monitor, "is_alive", look)
    monkeypatch.setattr("utterd.monitor.PROGRESS_INTERVAL_S", 0.0)
    monitor.max_work_s = -1.0
    with capture_logs() as logs, monitor.interruptions.work():
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(monitor.watch_progress())
            await enough.wait()
            watching.cancel()
    assert [(line["event"], line["in_hand"]) for line in logs] == [("no_progress", 1)]
