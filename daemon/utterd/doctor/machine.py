"""Whether this machine has room: processor, disks, open files."""

import os
import resource
import shutil
import tempfile
from pathlib import Path

from utterd.app import make_planner, make_spool, spool_directory
from utterd.config import Settings, StoreSettings
from utterd.doctor.finding import Finding, Findings, fault, ok, warning
from utterd.errors import ConfigurationError
from utterd.offload import Offload
from utterd.ops.cpu import WorkerPlan, cgroup_quota, plan_workers, usable_cores

_MIB = 1024 * 1024
_LEAST_FREE_BYTES = 16 * _MIB
_LITTLE_FREE_BYTES = 128 * _MIB

# Two connections, the store's pool, a socket and a handful of pipes a worker.
_FILES_OF_A_DAEMON = 128
_FILES_A_WORKER = 8


async def examine_machine(settings: Settings) -> Findings:
    """Read what the kernel tells; nothing is written."""
    yield _processor(settings)
    yield _open_files(settings)
    async with Offload("doctor", threads=1) as thread:
        yield await thread.run(_temporary)
        if settings.store.kind == "filesystem":
            needed = _LITTLE_FREE_BYTES
            yield await thread.run(_room, "audio", settings.store.directory, needed)
        directory = spool_directory(settings.store)
        yield await thread.run(_room, "spool", directory, settings.store.spool_max_bytes)
        yield await _spooled(settings.store, thread)


def _processor(settings: Settings) -> Finding:
    cores, quota = usable_cores(), cgroup_quota()
    plan = _plan(settings)
    says = (
        f"{cores:g} usable cores ({'no quota' if quota is None else f'a quota of {quota:g}'}),"
        f" {plan.workers} workers of {plan.threads} threads"
    )
    if plan.workers * plan.threads > max(1.0, cores):
        return warning(
            "processor",
            f"{says}: they will wait for each other. Lower engine.workers or engine.threads",
        )
    if cores < 1:
        return warning("processor", f"{says}: speech may be slower than real time")
    return ok("processor", says)


def _plan(settings: Settings) -> WorkerPlan:
    engine = settings.engine
    try:
        concurrency = make_planner(settings).info.concurrency
    except ConfigurationError:
        # Another check tells of it.
        concurrency = 1
    return plan_workers(
        usable_cores(), workers=engine.workers, threads=engine.threads, concurrency=concurrency
    )


def _open_files(settings: Settings) -> Finding:
    plan = _plan(settings)
    needed = _FILES_OF_A_DAEMON + plan.workers * _FILES_A_WORKER
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        return fault(
            "open files",
            f"the limit is {limit}, about {needed} are needed: raise it with `ulimit -n`, or"
            " LimitNOFILE of the systemd unit",
        )
    return ok("open files", f"about {needed} are needed of {limit}")


def _temporary() -> Finding:
    try:
        directory = Path(tempfile.gettempdir())
    except FileNotFoundError:
        return fault("temporary files", "no directory takes any: set TMPDIR to one that does")
    return _room("temporary files", directory, _LITTLE_FREE_BYTES)


def _room(check: str, directory: Path, wanted_bytes: int) -> Finding:
    """Whether files can be made in a directory, which may not be there yet, and how many."""
    path = directory.absolute()
    place = next(one for one in (path, *path.parents) if one.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        return fault(
            check,
            f"nothing can be written to {directory}: give the daemon's user the right, and under"
            " systemd list it in ReadWritePaths",
        )
    free_bytes = shutil.disk_usage(place).free
    says = f"{free_bytes // _MIB} MiB are free for {directory}"
    if free_bytes < _LEAST_FREE_BYTES:
        return fault(check, f"{says}: free some")
    if free_bytes < wanted_bytes:
        return warning(check, f"{says}, up to {wanted_bytes // _MIB} MiB may be used: free some")
    return ok(check, says)


async def _spooled(settings: StoreSettings, thread: Offload) -> Finding:
    waiting = await make_spool(settings, thread).waiting()
    if waiting:
        return warning(
            "spooled audio",
            f"{len(waiting)} files of {sum(waiting.values())} bytes wait for the store: they go"
            " up first when a daemon runs",
        )
    return ok("spooled audio", "none waits")
