"""`cancel`: jobs are called off."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from utterd.cli.exit_status import ExitStatus
from utterd.cli.output import JsonOption, print_json
from utterd.client import ReceivedEvent, open_client
from utterd.config import BrokerSettings, LogSettings
from utterd.ops.logging import configure_logging
from utterd.settings_sources import load_settings
from utterd_schemas.events import EventType


def cancel(
    job_ids: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of jobs.")],
    *,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the terminal events and print them.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="How many seconds to wait.", min=0.1)
    ] = 120.0,
    as_json: JsonOption = False,
) -> None:
    """Call jobs off that wait or run; their terminal event is `cancelled`.

    The daemons that run now obey, between two segments or when a queued job reaches them. A job
    that has ended stays as it is, and is not told of again. With --wait, the status is 1 when a job
    ended in another way, and 75 when nothing was heard of one.

    Example: utterd cancel greeting-1 greeting-2 --wait
    """
    settings = load_settings().settings
    configure_logging(LogSettings(level="error"))
    wanted = list(dict.fromkeys(job_ids))
    if wait:
        events = asyncio.run(_cancel_and_wait(settings.broker, wanted, timeout_s))
        for event in events:
            print_json(event)
        if any(event["type"] != EventType.CANCELLED for event in events):
            raise typer.Exit(ExitStatus.FAILED)
        return
    asyncio.run(_cancel(settings.broker, wanted))
    if as_json:
        print_json({"cancelled": wanted})
    else:
        for job_id in wanted:
            typer.echo(job_id)


async def _cancel(settings: BrokerSettings, job_ids: Sequence[str]) -> None:
    async with open_client(settings, "utterd cancel") as client:
        await client.cancel(job_ids)


async def _cancel_and_wait(
    settings: BrokerSettings, job_ids: Sequence[str], timeout_s: float
) -> list[ReceivedEvent]:
    async with open_client(settings, "utterd cancel") as client:
        outcomes = await client.cancel_and_wait(job_ids, timeout_s=timeout_s)
    return [outcomes[job_id] for job_id in job_ids]
