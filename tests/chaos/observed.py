"""`utterd run`, with a log line a second about the tasks of its event loop."""

import asyncio

import structlog

from utterd.daemon import run_daemon
from utterd.ops.logging import configure_logging
from utterd.settings_sources import load_settings

EVENT = "tasks_counted"
_INTERVAL_S = 1.0

log = structlog.get_logger(__name__)


async def _count_tasks() -> None:
    while True:
        log.info(EVENT, tasks=len(asyncio.all_tasks()))
        await asyncio.sleep(_INTERVAL_S)


async def main() -> None:
    settings = load_settings().settings
    configure_logging(settings.log)
    counting = asyncio.create_task(_count_tasks(), name="count-tasks")
    try:
        await run_daemon(settings)
    finally:
        counting.cancel()


if __name__ == "__main__":
    asyncio.run(main())
