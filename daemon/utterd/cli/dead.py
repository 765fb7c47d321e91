"""`dead`: the jobs that could not be finished."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated

import typer

from utterd.broker.dead import DeadJob, DeadJobs, Wanted, open_dead
from utterd.broker.message import Delivery
from utterd.cli.dead_output import described, listed, summary
from utterd.cli.durations import parse_duration
from utterd.cli.exit_status import ExitStatus
from utterd.cli.output import JsonOption, print_json, print_table
from utterd.config import LogSettings, Settings
from utterd.jobs.decode import UndecodableError, decode
from utterd.ops.logging import configure_logging
from utterd.settings_sources import load_settings

app = typer.Typer(
    help="Jobs that could not be finished, in the queue of the dead."
    "\n\nThe exit status is 1 when no job fits.",
    no_args_is_help=True,
)

JobOption = Annotated[str | None, typer.Option("--job", help="Only the job of this id.")]
CodeOption = Annotated[
    str | None,
    typer.Option(
        "--code",
        help="Only those of this reason: an error code, `delivery_limit`, `expired`, `rejected`"
        " or `unrouted`.",
    ),
]
OlderOption = Annotated[
    timedelta | None,
    typer.Option(
        "--older-than",
        parser=parse_duration,
        metavar="DURATION",
        help="Only those that died longer ago, such as 2h or 3d.",
    ),
]
NewerOption = Annotated[
    timedelta | None,
    typer.Option(
        "--newer-than",
        parser=parse_duration,
        metavar="DURATION",
        help="Only those that died since, such as 15m.",
    ),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", "-n", help="At most so many jobs.", min=1)
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only print which jobs would be taken.")
]

Act = Callable[[DeadJobs, DeadJob], Awaitable[None]]


@app.command("list")
def list_jobs(
    *,
    job_id: JobOption = None,
    code: CodeOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """List dead jobs with their reasons, without their text; as JSON, one object a line.

    Example: utterd dead list --code engine_failed --newer-than 2h
    """
    rows: list[dict[str, object]] = []

    async def collect(_: DeadJobs, dead: DeadJob) -> None:
        rows.append(listed(dead))

    _for_each(_wanted(job_id, code, older_than, newer_than), limit, collect)
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(tuple(rows[0]), (tuple(row.values()) for row in rows))


@app.command()
def show(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    *,
    with_body: Annotated[bool, typer.Option("--body", help="Also what the job says.")] = False,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a dead job: why and when it died, its history, its headers, and its body if asked.

    Example: utterd dead show greeting-1 --body
    """

    async def tell(_: DeadJobs, dead: DeadJob) -> None:
        facts = described(dead, with_body=with_body)
        if as_json:
            print_json(facts)
        else:
            print_table(("field", "value"), facts.items())

    _for_each(Wanted(job_id=job_id), limit, tell)


@app.command()
def replay(
    *,
    job_id: JobOption = None,
    code: CodeOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    limit: LimitOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send dead jobs back to their lanes under their own ids, as if they had never been tried.

    A job leaves the dead after the broker has confirmed it in its lane: an end half-way loses
    none.

    Example: utterd dead replay --code worker_died --dry-run
    """

    async def send_back(dead_jobs: DeadJobs, dead: DeadJob) -> None:
        if not dry_run:
            await dead_jobs.replay(dead)
        _print_action(dead, "would be replayed" if dry_run else "replayed", as_json=as_json)

    _for_each(_wanted(job_id, code, older_than, newer_than), limit, send_back)


@app.command()
def purge(
    *,
    job_id: JobOption = None,
    code: CodeOption = None,
    older_than: OlderOption = None,
    newer_than: NewerOption = None,
    limit: LimitOption = None,
    dry_run: DryRunOption = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Don't ask before all are removed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove dead jobs for good. Without a filter, it asks first.

    Example: utterd dead purge --older-than 30d
    """
    wanted = _wanted(job_id, code, older_than, newer_than)
    if wanted.is_everything and not (dry_run or yes):
        count = asyncio.run(_count(load_settings().settings))
        asked = min(count, limit or count)
        typer.confirm(f"Remove {asked} of {count} dead jobs for good?", abort=True, err=True)

    async def remove(dead_jobs: DeadJobs, dead: DeadJob) -> None:
        if not dry_run:
            await dead_jobs.drop(dead)
        _print_action(dead, "would be removed" if dry_run else "removed", as_json=as_json)

    _for_each(wanted, limit, remove)


def _print_action(dead: DeadJob, action: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"action": action, **listed(dead)})
    else:
        typer.echo(f"{action}: {summary(dead)}")


def _wanted(
    job_id: str | None,
    code: str | None,
    older_than: timedelta | None,
    newer_than: timedelta | None,
) -> Wanted:
    now = datetime.now(UTC)
    return Wanted(
        job_id=job_id,
        reason=code,
        died_before=None if older_than is None else now - older_than,
        died_after=None if newer_than is None else now - newer_than,
    )


def _for_each(wanted: Wanted, limit: int | None, act: Act) -> None:
    """Do something with each job that fits; ends the command with 1 when none does."""
    settings = load_settings().settings
    configure_logging(LogSettings(level="error"))
    if not asyncio.run(_act_on(settings, wanted, limit, act)):
        typer.echo("no dead job fits", err=True)
        raise typer.Exit(ExitStatus.FAILED)


async def _act_on(settings: Settings, wanted: Wanted, limit: int | None, act: Act) -> int:
    acted_on = 0
    identify = partial(_job_id, max_bytes=settings.speech.max_message_bytes)
    async with open_dead(settings.broker, "utterd dead", identify) as dead_jobs:
        async for dead in dead_jobs.find(wanted, limit):
            await act(dead_jobs, dead)
            acted_on += 1
    return acted_on


async def _count(settings: Settings) -> int:
    identify = partial(_job_id, max_bytes=settings.speech.max_message_bytes)
    async with open_dead(settings.broker, "utterd dead", identify) as dead_jobs:
        return await dead_jobs.count()


def _job_id(delivery: Delivery, max_bytes: int) -> str | None:
    """The id that a daemon knows the job by."""
    try:
        return decode(delivery, max_bytes=max_bytes, now=datetime.now(UTC)).job_id
    except UndecodableError as refusal:
        return refusal.sender.job_id
