"""The composition root: makes every part from the settings."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import structlog

from utterd import __version__
from utterd.backoff import FullJitter
from utterd.broker.event import EventSink
from utterd.config import EngineSettings, Settings, StoreSettings
from utterd.engines.host import EngineHost
from utterd.engines.protocol import DEFAULT_VOICE, EngineInfo, EngineOptions
from utterd.engines.registry import engine_module
from utterd.environment import Environment
from utterd.errors import ConfigurationError, UnknownVoiceError
from utterd.interruptions import Interruptions
from utterd.jobs.announce import Announcer
from utterd.jobs.lapsed import LapsedRunner
from utterd.jobs.plan import Planner
from utterd.jobs.planning import JobPlanner
from utterd.jobs.progress import Progress
from utterd.jobs.runner import Runner
from utterd.jobs.settle import Settler
from utterd.jobs.singleflight import SingleFlight
from utterd.jobs.speak import Speaker
from utterd.offload import Offload
from utterd.ops.cpu import plan_workers, usable_cores
from utterd.ops.energy import EnergyCollector
from utterd.ops.metrics import Metrics
from utterd.ops.tracing import NoTracing, Tracing
from utterd.store.filesystem import FilesystemObjectStore
from utterd.store.protocol import ObjectStore
from utterd.store.s3 import S3ObjectStore, open_s3_store
from utterd.store.s3_client import S3Options
from utterd.store.spool import Spool
from utterd.text.lexicon import Lexicon, read_lexicon

log = structlog.get_logger(__name__)

PROBE_DELAYS = FullJitter(base_s=0.5, cap_s=30.0)


def utc_now() -> datetime:
    return datetime.now(UTC)


def make_planner(settings: Settings, info: EngineInfo | None = None) -> Planner:
    """The planner of the configured engine; no model is loaded.

    Args:
        settings: of the daemon.
        info: what the engine said of itself when it was loaded; None asks it.

    Raises:
        ConfigurationError: the settings name a voice that the engine does not have, or a lexicon
            that can't be read.
    """
    module = engine_module(settings.engine.name)
    info = info or module.describe(engine_options(settings.engine))
    speech = settings.speech
    default_voice = speech.voice or f"{info.name}/{info.voices[0].name}"
    aliases = {DEFAULT_VOICE: default_voice, **info.aliases, **speech.aliases}
    planner = Planner(
        info=info,
        module=module,
        default_voice=default_voice,
        aliases={name: aliases.get(target, target) for name, target in aliases.items()},
        default_format=speech.format,
        max_text_chars=speech.max_text_chars,
        max_pauses_s=speech.max_pauses_s,
        prefix=settings.store.prefix,
        lexicon=read_lexicon(speech.lexicon) if speech.lexicon else Lexicon(),
    )
    for name in (default_voice, *speech.aliases):
        try:
            planner.voice(name)
        except UnknownVoiceError as error:
            raise ConfigurationError(
                f"speech.voice or speech.aliases: {name!r} stands for no voice of"
                f" {settings.engine.name}. {error.message}"
            ) from None
    return planner


def engine_options(settings: EngineSettings) -> EngineOptions:
    """What the engine is told of its settings."""
    return EngineOptions(
        bundle=settings.bundle,
        rows=settings.rows,
        euler_steps=settings.euler_steps,
        cache_tokens=settings.cache_tokens,
    )


@asynccontextmanager
async def open_store(settings: StoreSettings) -> AsyncIterator[ObjectStore]:
    """The configured store, and the threads that its calls run in."""
    async with Offload("store", settings.upload_threads) as threads:
        if settings.kind == "filesystem":
            yield FilesystemObjectStore(settings.directory, threads, durable=settings.durable)
            return
        async with open_s3_store(_s3_options(settings), threads) as store:
            yield store


async def use_store_credentials(objects: ObjectStore, settings: StoreSettings) -> None:
    """Sign further calls with the settings' credentials, where the store has any.

    Raises:
        ConfigurationError: they can't be used.
    """
    if isinstance(objects, S3ObjectStore):
        options = _s3_options(settings)
        await objects.use_credentials(
            options.access_key_id, options.secret_access_key, options.session_token
        )


def _s3_options(settings: StoreSettings) -> S3Options:
    secret, token = settings.secret_access_key, settings.session_token
    return S3Options(
        bucket=settings.bucket,
        endpoint_url=settings.endpoint_url,
        tls_ca_file=settings.tls_ca_file,
        region=settings.region,
        access_key_id=settings.access_key_id,
        secret_access_key=secret.get_secret_value() if secret else None,
        session_token=token.get_secret_value() if token else None,
        prefix=settings.prefix,
        connect_timeout_s=settings.connect_timeout_s,
        read_timeout_s=settings.read_timeout_s,
    )


def make_metrics(planner: Planner) -> Metrics:
    """The metrics of this daemon, with what runs here."""
    metrics = Metrics()
    info = planner.info
    metrics.describe_build(version=__version__, engine=info.name, engine_version=info.version)
    metrics.registry.register(EnergyCollector())
    return metrics


@contextmanager
def open_tracing(settings: Settings) -> Iterator[Tracing]:
    """The configured tracing; what it has not sent yet is sent at the end of the block.

    Raises:
        ConfigurationError: it is wanted, and its packages are not installed.
    """
    if not settings.tracing.enabled:
        yield NoTracing()
        return
    try:
        from utterd.ops.opentelemetry import (  # noqa: PLC0415 - an extra, and slow to import
            OpenTelemetryTracing,
            exporting_provider,
        )
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"tracing.enabled needs the Python package {error.name!r}: install utterd with the"
            " extra `tracing` (pip install '.[tracing]' in its sources), or turn it off"
        ) from error
    provider = exporting_provider()
    try:
        yield OpenTelemetryTracing(provider, settings.broker)
    finally:
        provider.shutdown()


def make_engine_host(
    settings: Settings,
    planner: Planner,
    environment: Environment | None = None,
    metrics: Metrics | None = None,
) -> EngineHost:
    """The configured engine's workers, sized for this machine; not started."""
    engine = settings.engine
    return EngineHost(
        planner.info,
        plan_workers(
            usable_cores(),
            workers=engine.workers,
            threads=engine.threads,
            concurrency=planner.info.concurrency,
        ),
        options=engine_options(engine),
        start_timeout_s=engine.start_timeout_s,
        cancel_grace_s=engine.cancel_grace_s,
        max_worker_bytes=engine.max_worker_bytes,
        environment=environment,
        metrics=metrics,
    )


def make_announcer(settings: Settings, sink: EventSink, tracing: Tracing) -> Announcer:
    """What makes the events of this daemon."""
    return Announcer(sink=sink, source=settings.events.source, now=utc_now, tracing=tracing)


def make_runner(  # noqa: PLR0913 - one argument a part
    settings: Settings,
    *,
    planner: JobPlanner,
    speaker: Speaker,
    objects: ObjectStore,
    spool: Spool,
    sink: EventSink,
    announcer: Announcer,
    interruptions: Interruptions,
    metrics: Metrics,
    tracing: Tracing,
    encoding: Offload,
    tasks: asyncio.TaskGroup,
) -> Runner:
    """The straight line, from parts that are open already."""
    return Runner(
        planner=planner,
        speaker=speaker,
        objects=objects,
        settler=Settler(
            sink=sink,
            announcer=announcer,
            metrics=metrics,
            tracing=tracing,
            retry_delays_s=settings.broker.limits.retry_delays_s,
        ),
        progress=Progress(
            announcer=announcer,
            objects=objects,
            encoding=encoding,
            is_always_told=settings.events.progress,
            presign_expires_s=settings.store.presign_expires_s,
        ),
        flights=SingleFlight(tasks),
        encoding=encoding,
        now=utc_now,
        monotonic=time.monotonic,
        max_message_bytes=settings.speech.max_message_bytes,
        job_timeout_s=settings.speech.job_timeout_s,
        work_timeout_s=settings.broker.limits.work_timeout_s,
        spool=spool,
        interruptions=interruptions,
        metrics=metrics,
        tracing=tracing,
        presign_expires_s=settings.store.presign_expires_s,
    )


def make_lapsed_runner(
    settings: Settings,
    *,
    planner: JobPlanner,
    objects: ObjectStore,
    sink: EventSink,
    announcer: Announcer,
    metrics: Metrics,
) -> LapsedRunner:
    """What tells of jobs that the broker gave up, from parts that are open already."""
    return LapsedRunner(
        settings=settings.broker,
        planner=planner,
        objects=objects,
        sink=sink,
        announcer=announcer,
        metrics=metrics,
        now=utc_now,
        monotonic=time.monotonic,
        max_message_bytes=settings.speech.max_message_bytes,
        presign_expires_s=settings.store.presign_expires_s,
    )


def make_spool(settings: StoreSettings, files: Offload) -> Spool:
    """The spool, which needs no directory yet."""
    return Spool(spool_directory(settings), files, max_bytes=settings.spool_max_bytes)


def spool_directory(settings: StoreSettings) -> Path:
    """Where the spool is: in the directory of the settings or of the host."""
    state = os.environ.get("STATE_DIRECTORY") or Path.home() / ".local/state/utterd"
    return settings.spool_directory or Path(state) / "spool"


async def probe_store(objects: ObjectStore, spool: Spool) -> None:
    """Find out whether the store takes objects, and hand it what waits.

    Raises:
        StoreUnavailableError: it does not.
    """
    capabilities = await objects.probe()
    log.info("store_ready", bucket=objects.bucket, **asdict(capabilities))
    await spool.flush(objects)
