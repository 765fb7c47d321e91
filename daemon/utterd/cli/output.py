"""How commands print."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

_WIDE = 10_000

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def in_a_folder(path: Path | None) -> Path | None:
    """Refuse a file that can't be made, before any work is done for it."""
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(f"{path.parent} is not a directory: make it first")
    if path is not None and path.is_dir():
        raise typer.BadParameter(f"{path} is a directory: name a file in it")
    return path


def print_json(value: object, *, err: bool = False) -> None:
    """One JSON document on one line, on standard output or on standard error."""
    typer.echo(json.dumps(value, ensure_ascii=False, default=str), err=err)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table for a person."""
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        # The first one names the row: whoever copies it wants it whole.
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        # In a pipe, a row is a line.
        console.width = _WIDE
    console.print(table, markup=False)
