"""`doctor`: whether everything that a daemon needs is there."""

import asyncio
from collections import Counter
from contextlib import aclosing
from dataclasses import asdict

import typer

from utterd.cli.exit_status import ExitStatus
from utterd.cli.output import JsonOption, print_json
from utterd.config import LogSettings
from utterd.doctor.examination import Group, examine, groups
from utterd.doctor.finding import Finding, Verdict, fault
from utterd.errors import ConfigurationError
from utterd.ops.logging import configure_logging
from utterd.settings_sources import load_settings

_VERDICT_WIDTH = max(map(len, Verdict))


def doctor(*, as_json: JsonOption = False) -> None:
    """Look at settings, broker, store, codecs, this machine and the engine; changes nothing.

    Each line says ok, warning or fault, and what to do. The status is 1 when there is a fault.

    Example: utterd doctor --json
    """
    configure_logging(LogSettings(level="error"))
    try:
        settings = load_settings().settings
    except ConfigurationError as error:
        found = [("settings", fault("values", str(error)))]
        _print_finding(*found[0], as_json=as_json)
    else:
        found = asyncio.run(_examine(groups(settings), as_json=as_json))
    verdicts = Counter(finding.verdict for _, finding in found)
    if not as_json:
        typer.echo(", ".join(f"{verdicts[verdict]} {verdict}" for verdict in Verdict))
    if verdicts[Verdict.FAULT]:
        raise typer.Exit(ExitStatus.FAILED)


async def _examine(examined: tuple[Group, ...], *, as_json: bool) -> list[tuple[str, Finding]]:
    found: list[tuple[str, Finding]] = []
    async with aclosing(examine(examined)) as findings:
        async for group, finding in findings:
            _print_finding(group, finding, as_json=as_json)
            found.append((group, finding))
    return found


def _print_finding(group: str, finding: Finding, *, as_json: bool) -> None:
    if as_json:
        print_json({"group": group, **asdict(finding)})
    else:
        verdict = f"{finding.verdict:<{_VERDICT_WIDTH}}"
        typer.echo(f"{verdict}  {group}: {finding.check}: {finding.message}")
