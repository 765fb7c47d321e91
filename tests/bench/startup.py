"""How soon a daemon consumes, and how much memory it holds."""

from collections.abc import Mapping
from statistics import median

from aio_pika.abc import AbstractConnection
from daemon import running_daemon
from proc import memory_mb
from report import Row, Section
from texts import announcements
from throughput import complete_jobs

from utterd.config import BrokerSettings

TARGET_START_S = 3.0
TARGET_MEMORY_MB = 350
_STARTS = 3
_JOBS = 40

METHOD = f"""\
From the start of the process `utterd run` to its log line `consuming`: settings read, bucket
probed, model loaded in every worker, topology declared, both lanes subscribed. Median of {_STARTS}
starts with the files in the page cache. Then memory with one worker, after {_JOBS} jobs: the
proportional set size of the parent and of the worker, from `/proc/PID/smaps_rollup`."""


async def measure_startup(
    connection: AbstractConnection, broker: BrokerSettings, environment: Mapping[str, str]
) -> Section:
    """Start daemons one after the other.

    Args:
        connection: to publish with.
        broker: of the sandbox.
        environment: settings that point a daemon at the sandbox.
    """
    starts_s = []
    workers = 0
    for _ in range(_STARTS):
        async with running_daemon(environment) as daemon:
            starts_s.append(daemon.start_s)
            workers = len(daemon.worker_pids)
    async with running_daemon({**environment, "UTTERD_ENGINE__WORKERS": "1"}) as daemon:
        (worker_pid,) = daemon.worker_pids
        await complete_jobs(connection, broker, announcements(_JOBS), "memory")
        parent_mb, worker_mb = memory_mb(daemon.pid), memory_mb(worker_pid)
    start_s = median(starts_s)
    total_mb = parent_mb + worker_mb
    return Section(
        title="Start and memory",
        method=METHOD,
        rows=(
            Row(
                name=f"cold start to first consume, {workers} workers",
                figure=f"{start_s:.2f} s",
                target=f"< {TARGET_START_S:g} s",
                is_met=start_s < TARGET_START_S,
            ),
            Row(
                name=f"parent ({parent_mb:.0f} MB) and one worker ({worker_mb:.0f} MB)",
                figure=f"{total_mb:.0f} MB",
                target=f"< {TARGET_MEMORY_MB} MB",
                is_met=total_mb < TARGET_MEMORY_MB,
            ),
        ),
    )
