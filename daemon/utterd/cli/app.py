"""All commands, in the order that `utterd --help` lists them."""

from typing import Annotated

import typer

from utterd import __version__
from utterd.cli import (
    bundle,
    cancel,
    daemon,
    dead,
    doctor,
    events,
    jobs,
    sandbox,
    service,
    topology,
    voices,
)

app = typer.Typer(
    name="utterd",
    help="A speech-synthesis job daemon: a queue of text in, audio in a bucket and events out."
    "\n\nExit status: 0 done, 1 failed, 2 wrong usage, 65 invalid job, 75 try again later,"
    " 78 configuration.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes the flag so
    if wanted:
        typer.echo(f"utterd {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None: ...


app.command("say")(jobs.say)
app.command("publish")(jobs.publish)
app.command("cancel")(cancel.cancel)
app.command("watch")(events.watch)
app.command("run")(daemon.run)
app.command("check")(daemon.check)
app.command("voices")(voices.voices)
app.command("plan")(voices.plan)
app.command("key")(voices.key)
app.add_typer(topology.app, name="topology")
app.add_typer(dead.app, name="dead")
app.add_typer(bundle.app, name="bundle")
app.command("doctor")(doctor.doctor)
app.add_typer(service.app, name="service")
app.command("sandbox")(sandbox.sandbox)
app.command("demo")(sandbox.demo)
