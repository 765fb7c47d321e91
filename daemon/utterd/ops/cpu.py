"""How much processor this process may use, and how engines share it."""

import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_CPU_INFO = Path("/proc/cpuinfo")
_VNNI_FLAGS = frozenset({"avx512_vnni", "avx_vnni"})


def usable_cores(*, affinity: int | None = None, quota: float | None = None) -> float:
    """Cores that this process may use: the affinity mask, capped by the cgroup's CPU quota.

    Args:
        affinity: number of cores in the mask; default: asked of the kernel.
        quota: cores' worth of CPU time; default: read from the cgroup.
    """
    cores = float(affinity if affinity is not None else len(os.sched_getaffinity(0)))
    limit = quota if quota is not None else cgroup_quota()
    return cores if limit is None else min(cores, limit)


def cgroup_quota(
    root: Path = _CGROUP_ROOT, membership: Path = Path("/proc/self/cgroup")
) -> float | None:
    """The tightest CPU quota of this process's cgroup and its ancestors, in cores.

    Reads `cpu.max` (version 2) and `cpu.cfs_quota_us` (version 1). None: no quota.
    """
    quotas = [quota for group in _cgroups(root, membership) if (quota := _quota_of(group))]
    return min(quotas, default=None)


def _cgroups(root: Path, membership: Path) -> list[Path]:
    try:
        lines = membership.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    groups = [root, root / "cpu"]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / controllers if controllers else root
        group = base / path.lstrip("/")
        groups += [parent for parent in (group, *group.parents) if parent.is_relative_to(base)]
    return groups


def _quota_of(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            quota = (group / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (group / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except OSError:
            return None
    if quota in ("max", "-1"):
        return None
    return int(quota) / int(period)


def saturates_int8_products(*, machine: str | None = None, cpu_info: Path = _CPU_INFO) -> bool:
    """Whether sums of int8 products are cut at 16 bits: on x86-64 without VNNI.

    There, onnxruntime multiplies unsigned with signed bytes by `vpmaddubsw`.

    Args:
        machine: its architecture; default: this machine's.
        cpu_info: what the kernel says of the processor. Where it can't be read, it says no.
    """
    if (machine or platform.machine()) != "x86_64":
        return False
    try:
        text = cpu_info.read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    return bool(flags) and _VNNI_FLAGS.isdisjoint(flags)


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """How an engine is spread over processes.

    Attributes:
        workers: processes.
        concurrency: requests that one process serves at once.
        threads: cores that one process may keep busy.
    """

    workers: int
    concurrency: int
    threads: int

    @property
    def slots(self) -> int:
        """Segments that can be spoken at once; also the prefetch of each lane."""
        return self.workers * self.concurrency


def plan_workers(
    cores: float,
    *,
    workers: int | None = None,
    threads: int | None = None,
    concurrency: int = 1,
) -> WorkerPlan:
    """One single-threaded worker a core, unless the settings or the engine say otherwise.

    Several processes of one thread beat one process of several threads on small models. An
    engine that serves several requests at once gets one process with all cores, so that its
    weights lie in memory once. A fraction of a core beyond that stays idle, for the daemon itself.

    Args:
        cores: that may be used.
        workers: processes; default: as above.
        threads: of each process; default: as above.
        concurrency: requests that the engine serves at once in one process.
    """
    if concurrency > 1:
        count = workers or 1
        threads_each = threads or max(1, math.floor(cores / count))
    else:
        threads_each = threads or 1
        count = workers or max(1, math.floor(cores / threads_each))
    return WorkerPlan(workers=count, concurrency=concurrency, threads=threads_each)
