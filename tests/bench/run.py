"""Measure, tell of each result as it comes, and write `docs/performance.md`.

python tests/bench/run.py
"""

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from cached import measure_cached
from daemon import running_daemon
from encoding import measure_encoding
from machine import machine_facts
from overhead import measure_overhead
from pydantic import SecretStr
from report import Section, document, section_in
from startup import measure_startup
from throughput import measure_throughput

from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.topology import topology
from utterd.config import BrokerSettings, LogSettings
from utterd.ops.logging import configure_logging
from utterd.sandbox import Sandbox

DOCUMENT = Path(__file__).parents[2] / "docs" / "performance.md"


async def measure(sandbox: Sandbox) -> None:
    """Make every measurement and write the document."""
    started_s = time.perf_counter()
    broker = BrokerSettings(url=SecretStr(sandbox.amqp_url))
    environment = sandbox.environ() | {"UTTERD_HEALTH__PORT": "0"}
    sections: list[Section] = []

    def add(section: Section) -> None:
        sections.append(section)
        _tell(section)

    async with await connect(broker, "bench") as connection:
        await declare.apply(connection, topology(broker))
        facts = machine_facts(connection)
        add(await measure_overhead(connection, sandbox.amqp_url))
        async with running_daemon(environment) as daemon:
            add(await measure_cached(connection, broker))
            add(await measure_throughput(connection, broker, daemon))
        add(await measure_startup(connection, broker, environment))
    add(measure_encoding())
    kept = section_in(DOCUMENT.read_text(encoding="utf-8"), "CosyVoice").rstrip()
    text = document(
        facts,
        sections,
        kept=f"{kept}\n" if kept else "",
        duration_s=time.perf_counter() - started_s,
    )
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(text, encoding="utf-8")
    sys.stdout.write(f"\nwrote {DOCUMENT.name}\n")


def _tell(section: Section) -> None:
    sys.stdout.write(f"\n{section.title}\n")
    for cells in section.table or [row.cells() for row in section.rows]:
        sys.stdout.write(f"  {'  '.join(filter(None, cells))}\n")
    sys.stdout.flush()


def main() -> None:
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        TemporaryDirectory() as directory,
        Sandbox(Path(directory)) as sandbox,
    ):
        # The daemon's parts log as in production, but nobody has to read it.
        with contextlib.redirect_stderr(nowhere):
            configure_logging(LogSettings(format="json"))
        asyncio.run(measure(sandbox))


if __name__ == "__main__":
    main()
