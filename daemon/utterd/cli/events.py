"""`watch`: events as they come."""

import asyncio
from enum import StrEnum
from typing import Annotated

import typer

from utterd.cli.output import JsonOption, print_json
from utterd.client import ReceivedEvent, open_client
from utterd.config import BrokerSettings, LogSettings
from utterd.ops.logging import configure_logging
from utterd.settings_sources import load_settings


class Outcome(StrEnum):
    """What an event can tell about a job."""

    STARTED = "started"
    PROGRESS = "progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


def watch(
    *,
    outcome: Annotated[
        Outcome | None, typer.Option("--outcome", help="Only events of this kind.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", help="Stop after so many.", min=1)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print events as they come, until Ctrl-C.

    Example: utterd watch --outcome failed --json
    """
    settings = load_settings().settings
    configure_logging(LogSettings(level="error"))
    asyncio.run(_watch(settings.broker, f"synthesis.{outcome or '*'}", count, as_json=as_json))


async def _watch(
    settings: BrokerSettings, pattern: str, count: int | None, *, as_json: bool
) -> None:
    seen = 0
    async with open_client(settings, "utterd watch") as client:
        async for event in client.watch(pattern):
            if as_json:
                print_json(event)
            else:
                typer.echo(_line(event))
            seen += 1
            if seen == count:
                return


def _line(event: ReceivedEvent) -> str:
    outcome = str(event["type"]).split(".")[3]
    data = event["data"] if isinstance(event["data"], dict) else {}
    error = data.get("error")
    detail = data.get("url") or (error.get("code") if isinstance(error, dict) else None) or ""
    return f"{event['time']}  {outcome:<9}  {event['subject']}  {detail}"
