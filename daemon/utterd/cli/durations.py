"""Durations on the command line, such as `90s` or `2h`."""

import re
from datetime import timedelta

import typer

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_MAX_S = 100 * 366 * 86_400


def parse_duration(written: str) -> timedelta:
    """A number and its unit, from seconds to weeks.

    Raises:
        BadParameter: it is something else, or longer than a century.
    """
    match = re.fullmatch(r"([0-9]{1,10}(?:\.[0-9]{1,9})?)([smhdw])", written)
    if match is None:
        raise typer.BadParameter(f"{written!r} is no duration: write 90s, 15m, 2h, 3d or 1w")
    duration_s = float(match[1]) * _UNITS_S[match[2]]
    if duration_s > _MAX_S:
        raise typer.BadParameter(f"{written!r} is longer than a century")
    return timedelta(seconds=duration_s)
