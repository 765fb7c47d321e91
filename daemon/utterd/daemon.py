"""Runs the daemon: ties its parts together for as long as it lives."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import structlog

from utterd.app import (
    PROBE_DELAYS,
    make_announcer,
    make_engine_host,
    make_lapsed_runner,
    make_metrics,
    make_planner,
    make_runner,
    make_spool,
    open_store,
    open_tracing,
    probe_store,
    use_store_credentials,
)
from utterd.broker.connection import address, check_certificates
from utterd.broker.consumer import Consumer
from utterd.broker.hold_off import HoldOff
from utterd.broker.publisher import ENVIRONMENT_PART as PUBLISHING_PART
from utterd.broker.publisher import Publisher
from utterd.config import Lane, Settings
from utterd.engines.host import engine_host
from utterd.environment import Environment
from utterd.interruptions import Interruptions
from utterd.jobs.planning import CurrentPlanner
from utterd.lifecycle import stop_on_signals
from utterd.monitor import Monitor
from utterd.offload import Offload
from utterd.ops.logging import configure_logging
from utterd.ops.systemd import Notifier
from utterd.reload import keep_reloading, reload_on_hangup
from utterd.store.protocol import ObjectStore
from utterd.store.reporting import ENVIRONMENT_PART as STORE_PART
from utterd.store.reporting import ReportingObjectStore
from utterd.supervision import supervised

log = structlog.get_logger(__name__)

STOP_GRACE_S = 10.0
"""After the drain: for connections, workers and threads to end."""


async def run_daemon(settings: Settings) -> None:
    """Consume jobs until a signal says stop, then finish what is in hand.

    Raises:
        ConfigurationError: the settings, the engine or the topology need a person.
    """
    planner = make_planner(settings)
    for caveat in planner.info.caveats:
        log.warning("engine_caveat", reason=caveat)
    # Certificates that can't be read are a matter for a person, now and not in the first outage.
    check_certificates(settings.broker)
    current = CurrentPlanner(planner)
    metrics = make_metrics(planner)
    environment, interruptions = Environment(metrics), Interruptions()
    host = make_engine_host(settings, planner, environment, metrics)
    publisher = Publisher(settings.broker, environment, metrics=metrics)
    async with AsyncExitStack() as parts:
        budget_s = settings.lifecycle.drain_timeout_s + STOP_GRACE_S
        stop = parts.enter_context(stop_on_signals(hard_stop_after_s=budget_s))
        reload_wanted = parts.enter_context(reload_on_hangup())
        hold_off = HoldOff()
        monitor = Monitor(
            slots=host,
            environment=environment,
            interruptions=interruptions,
            stop=stop,
            broker=address(settings.broker),
            lanes=tuple(map(settings.broker.queues.of_lane, Lane)),
            max_work_s=settings.broker.limits.consumer_timeout_s,
            hold_off=hold_off,
        )
        tracing = parts.enter_context(open_tracing(settings))
        notifier = Notifier.from_environment()
        await parts.enter_async_context(supervised(monitor, metrics, settings.health, notifier))
        store = await parts.enter_async_context(open_store(settings.store))
        objects = ReportingObjectStore(store, environment)
        files = await parts.enter_async_context(Offload("spool", threads=1))
        reading = await parts.enter_async_context(Offload("settings", threads=1))
        encoding = await parts.enter_async_context(Offload("encode", threads=host.slots))
        await parts.enter_async_context(engine_host(host, stop))
        monitor.is_loaded = True
        tasks = await parts.enter_async_context(asyncio.TaskGroup())
        spool = make_spool(settings.store, files)
        announcer = make_announcer(settings, publisher, tracing)
        runner = make_runner(
            settings,
            planner=current,
            speaker=host,
            objects=objects,
            spool=spool,
            sink=publisher,
            announcer=announcer,
            interruptions=interruptions,
            metrics=metrics,
            tracing=tracing,
            encoding=encoding,
            tasks=tasks,
        )
        consumer = Consumer(
            settings.broker,
            prefetch=host.slots,
            handle=runner.run,
            handle_lapsed=make_lapsed_runner(
                settings,
                planner=current,
                objects=objects,
                sink=publisher,
                announcer=announcer,
                metrics=metrics,
            ).run,
            tasks=tasks,
            environment=environment,
            interruptions=interruptions,
            drain_timeout_s=settings.lifecycle.drain_timeout_s,
            consuming=monitor.consuming,
            metrics=metrics,
            hold_off=hold_off,
        )
        # Nothing is taken before the store has answered once.
        environment.report(STORE_PART, f"the bucket {store.bucket!r} has not been asked yet")
        changeable = _Changeable(current, reading, store, publisher, consumer)
        background = [
            tasks.create_task(publisher.run(), name="publisher"),
            tasks.create_task(
                environment.watch(STORE_PART, partial(probe_store, store, spool), PROBE_DELAYS),
                name="store-watch",
            ),
            tasks.create_task(
                environment.watch(PUBLISHING_PART, publisher.probe, PROBE_DELAYS),
                name="publishing-watch",
            ),
            tasks.create_task(
                monitor.watch_queues(
                    publisher.queue_depths, settings.broker.watched_queues, metrics
                ),
                name="queue-watch",
            ),
            tasks.create_task(
                keep_reloading(reload_wanted, settings, changeable.take, notifier, reading),
                name="reload",
            ),
        ]
        await consumer.run(stop)
        for task in background:
            task.cancel()
    log.info("stopped")


@dataclass(frozen=True, slots=True, eq=False)
class _Changeable:
    """The parts that take new settings while jobs are worked on.

    Attributes:
        current: plans the jobs. What the engine said of itself at the start stays, for the disk may
            hold another model by now.
        reading: where files are read.
        objects: the store.
        publisher: connects to the broker.
        consumer: likewise.
    """

    current: CurrentPlanner
    reading: Offload
    objects: ObjectStore
    publisher: Publisher
    consumer: Consumer

    async def take(self, settings: Settings) -> list[str]:
        """Take settings that differ in what is reloadable: voices, logs, and what opens the doors.

        Returns:
            `speech.lexicon` where the file holds other words than before, else nothing.

        Raises:
            ConfigurationError: something can't be used; nothing has changed.
        """
        in_use = self.current.planner
        planner = await self.reading.run(make_planner, settings, in_use.info)
        await self.reading.run(check_certificates, settings.broker)
        await use_store_credentials(self.objects, settings.store)
        self.current.planner = planner
        self.publisher.settings = self.consumer.settings = settings.broker
        configure_logging(settings.log)
        return ["speech.lexicon"] if planner.lexicon != in_use.lexicon else []
