"""`topology`: exchanges and queues on the broker."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict

import typer
from aio_pika.abc import AbstractConnection

from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.topology import Topology, topology
from utterd.cli.output import print_json
from utterd.config import LogSettings
from utterd.ops.logging import configure_logging
from utterd.settings_sources import load_settings

app = typer.Typer(help="Exchanges and queues on the broker.", no_args_is_help=True)

_Action = Callable[[AbstractConnection, Topology], Awaitable[None]]


@app.command()
def apply() -> None:
    """Declare what is missing; exit 78 with the difference when something stands differently.

    Example: utterd topology apply
    """
    _with_broker(declare.apply)
    typer.echo("the topology stands")


@app.command()
def check() -> None:
    """Make nothing; exit 78 with the difference when the broker differs from the settings.

    Example: utterd topology check
    """
    _with_broker(declare.check)
    typer.echo("the topology stands as the settings describe it")


@app.command()
def show() -> None:
    """Print the topology that the settings describe, as JSON; no broker is asked.

    Example: utterd topology show
    """
    print_json(asdict(topology(load_settings().settings.broker)))


def _with_broker(action: _Action) -> None:
    settings = load_settings().settings.broker
    configure_logging(LogSettings(level="error"))

    async def act() -> None:
        async with await connect(settings, "utterd topology") as connection:
            await action(connection, topology(settings))

    asyncio.run(act())
