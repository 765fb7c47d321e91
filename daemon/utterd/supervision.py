"""Lets others look at the daemon while it runs: systemd, Prometheus, a load balancer, a person."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from utterd.config import HealthSettings
from utterd.monitor import Monitor
from utterd.ops.health import HealthRoutes, health_server
from utterd.ops.memory import resident_bytes
from utterd.ops.metrics import Metrics
from utterd.ops.systemd import Notifier, keep_informed, watchdog_interval_s


@asynccontextmanager
async def supervised(
    monitor: Monitor, metrics: Metrics, settings: HealthSettings, notifier: Notifier
) -> AsyncIterator[None]:
    """Serve health and metrics, and keep systemd informed, for the length of the block.

    Raises:
        ConfigurationError: the health server can't listen where the settings say.
    """
    watch_gauges(monitor, metrics)
    async with AsyncExitStack() as parts:
        tasks = await parts.enter_async_context(asyncio.TaskGroup())
        watching = tasks.create_task(monitor.watch_progress(), name="progress-watch")
        parts.callback(watching.cancel)
        if settings.enabled:
            routes = HealthRoutes(monitor.status, metrics, monitor.is_alive)
            await parts.enter_async_context(health_server(routes, settings.host, settings.port))
        if notifier.is_heard:
            informing = tasks.create_task(
                keep_informed(
                    notifier,
                    monitor.status,
                    monitor.is_alive,
                    consuming=monitor.consuming,
                    stop=monitor.stop,
                    watchdog_s=watchdog_interval_s(),
                ),
                name="systemd",
            )
            parts.callback(informing.cancel)
        yield


def watch_gauges(monitor: Monitor, metrics: Metrics) -> None:
    """What is a matter of the moment, and needs no counting."""
    slots = monitor.slots
    gauges: dict[str, tuple[str, Callable[[], float]]] = {
        "utterd_ready": (
            "1 while a job that is published now would be taken.",
            lambda: monitor.status().is_ready,
        ),
        "utterd_slots": ("Segments that can be spoken at once.", lambda: slots.slots),
        "utterd_slots_busy": ("Slots that speak.", lambda: slots.busy),
        "utterd_segments_waiting": ("Segments that wait for a slot.", lambda: slots.waiting),
        "utterd_jobs_in_hand": (
            "Jobs that are being worked on.",
            lambda: len(monitor.interruptions),
        ),
        "utterd_workers": ("Engine workers that are up.", lambda: len(slots.pids)),
        "utterd_workers_resident_bytes": (
            "Resident memory of all engine workers.",
            lambda: sum(map(resident_bytes, slots.pids)),
        ),
    }
    for name, (meaning, read) in gauges.items():
        metrics.watch(name, meaning, read)
