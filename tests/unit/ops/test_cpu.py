"""How much processor this process may use, and how engines share it."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.ops.cpu import (
    WorkerPlan,
    cgroup_quota,
    plan_workers,
    saturates_int8_products,
    usable_cores,
)


def cgroup(root: Path, membership: str, files: dict[str, str]) -> float | None:
    """The quota of a made-up machine: `/proc/self/cgroup`, and files below `/sys/fs/cgroup`."""
    proc = root / "membership"
    proc.write_text(membership, encoding="ascii")
    for name, text in files.items():
        path = root / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return cgroup_quota(root / "fs", proc)


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        # Version 2: in a container the group is the root.
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {}, None),
        # Version 2: a service's own limit, and a slice's that is tighter or looser.
        ("0::/a.slice/b.service\n", {"a.slice/b.service/cpu.max": "50000 100000"}, 0.5),
        (
            "0::/a.slice/b.service\n",
            {"a.slice/cpu.max": "100000 100000", "a.slice/b.service/cpu.max": "400000 100000"},
            1.0,
        ),
        ("0::/a.slice/b.service\n", {"other.slice/cpu.max": "50000 100000"}, None),
        ("0::/../../outside\n", {"cpu.max": "200000 100000"}, 2.0),
        # Version 1: the controllers of a line name its directory.
        (
            "4:cpu,cpuacct:/docker/7\n3:memory:/docker/7\n1:name=systemd:/docker/7\n",
            {
                "cpu,cpuacct/docker/7/cpu.cfs_quota_us": "300000\n",
                "cpu,cpuacct/docker/7/cpu.cfs_period_us": "100000\n",
            },
            3.0,
        ),
        # Version 1 in a container: the path of the host is not there, its contents are the root's.
        (
            "4:cpu,cpuacct:/docker/7\n",
            {
                "cpu,cpuacct/cpu.cfs_quota_us": "25000\n",
                "cpu,cpuacct/cpu.cfs_period_us": "50000\n",
            },
            0.5,
        ),
        (
            "4:cpu:/\n",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            None,
        ),
        ("3:cpuset:/a\n", {"cpuset/a/cpu.max": "1 100000"}, None),
    ],
)
def test_reads_the_tightest_quota(
    tmp_path: Path, membership: str, files: dict[str, str], quota: float | None
):
    """Both cgroup versions, the process's own group and those around it."""
    assert cgroup(tmp_path, membership, files) == quota


def test_a_system_without_cgroups_has_no_quota(tmp_path: Path):
    """Neither file exists; that is no fault."""
    assert cgroup_quota(tmp_path / "fs", tmp_path / "membership") is None


def test_asks_the_kernel_for_what_is_not_given():
    """The mask of this very process is the upper bound (P-13)."""
    assert 0 < usable_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("affinity", "quota", "cores"), [(8, 2.5, 2.5), (2, 8.0, 2.0), (4, 4.0, 4.0)]
)
def test_the_tighter_of_mask_and_quota_counts(affinity: int, quota: float, cores: float):
    """A container may be limited by either."""
    assert usable_cores(affinity=affinity, quota=quota) == cores


@pytest.mark.parametrize(
    ("cores", "plan"),
    [
        (0.5, WorkerPlan(1, 1, 1)),
        (1.0, WorkerPlan(1, 1, 1)),
        (1.9, WorkerPlan(1, 1, 1)),
        (8.0, WorkerPlan(8, 1, 1)),
    ],
)
def test_plans_one_worker_a_whole_core(cores: float, plan: WorkerPlan):
    """A fraction of a core makes no worker of its own, but there is always one."""
    assert plan_workers(cores) == plan


def test_settings_override_the_plan():
    """Whoever sets workers, threads or concurrency gets them."""
    assert plan_workers(8.0, threads=3) == WorkerPlan(workers=2, concurrency=1, threads=3)
    assert plan_workers(1.0, workers=4) == WorkerPlan(workers=4, concurrency=1, threads=1)
    assert plan_workers(2.0, concurrency=8, workers=1).slots == 8


def test_an_engine_that_serves_several_at_once_gets_one_process():
    """Its weights lie in memory once, and it has all cores."""
    assert plan_workers(4.5, concurrency=8) == WorkerPlan(workers=1, concurrency=8, threads=4)
    assert plan_workers(0.5, concurrency=8) == WorkerPlan(workers=1, concurrency=8, threads=1)


@given(st.floats(0.01, 512), st.none() | st.integers(1, 64))
def test_a_plan_never_takes_more_threads_than_cores(cores: float, threads: int | None):
    """Unless one worker alone is told to have more (P-13)."""
    plan = plan_workers(cores, threads=threads)
    assert plan.slots == plan.workers >= 1
    assert plan.workers == 1 or plan.workers * plan.threads <= cores


@pytest.mark.parametrize(
    ("machine", "cpu_info", "saturates"),
    [
        ("x86_64", "processor\t: 0\nflags\t\t: fpu sse4_2 avx2\n", True),
        ("x86_64", "flags\t\t: avx2 avx512f avx512_vnni\n", False),
        ("x86_64", "flags\t\t: avx2 avx_vnni\n", False),
        ("x86_64", "", False),
        ("aarch64", "Features\t: fp asimd\n", False),
    ],
)
def test_int8_sums_are_cut_on_x86_without_vnni(tmp_path, machine, cpu_info, saturates):
    """Nothing is claimed of a processor that can't be asked, and Arm adds them exactly."""
    path = tmp_path / "cpuinfo"
    path.write_text(cpu_info, encoding="ascii")
    assert saturates_int8_products(machine=machine, cpu_info=path) is saturates


def test_a_kernel_that_says_nothing_is_not_accused(tmp_path):
    """/proc may not be mounted."""
    assert not saturates_int8_products(machine="x86_64", cpu_info=tmp_path / "none")
