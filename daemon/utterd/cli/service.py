"""`service`: utterd under systemd."""

from pathlib import Path
from typing import Annotated

import typer

from utterd.service.install import (
    UNIT_DIRECTORY,
    install,
    installed_command,
    next_steps,
    unit_of_this_host,
)
from utterd.service.unit import CONFIGURATION

app = typer.Typer(help="Run utterd as a systemd service.", no_args_is_help=True)

ConfigurationOption = Annotated[
    Path, typer.Option("--configuration", help="The folder of settings and secrets.")
]
TemplateOption = Annotated[
    bool,
    typer.Option("--template", help="One unit for several instances on this host, `utterd@NAME`."),
]


@app.command("show")
def show(
    *, configuration: ConfigurationOption = CONFIGURATION, template: TemplateOption = False
) -> None:
    """Print the unit for this host.

    Example: utterd service show > utterd.service
    """
    unit = unit_of_this_host(installed_command(), configuration, is_template=template)
    typer.echo(unit.render(), nl=False)


@app.command("install")
def install_unit(
    *,
    configuration: ConfigurationOption = CONFIGURATION,
    template: TemplateOption = False,
    directory: Annotated[
        Path, typer.Option("--directory", "-d", help="Where systemd looks for units.")
    ] = UNIT_DIRECTORY,
) -> None:
    """Write the unit for this host, and say what to do next. Nothing is started.

    Example: sudo /opt/utterd/bin/utterd service install
    """
    unit = unit_of_this_host(installed_command(), configuration, is_template=template)
    typer.echo(next_steps(unit, install(unit, directory)))
