"""Durations as they are typed."""

from datetime import timedelta

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from utterd.cli.durations import parse_duration


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90), ("15m", 900), ("2h", 7200), ("3d", 259_200), ("1w", 604_800), ("0.5h", 1800)],
)
def test_a_number_and_a_unit_are_a_duration(written, seconds):
    """From seconds to weeks, with decimals."""
    assert parse_duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize("written", ["", "2", "h", "-2h", "2 h", "2H", "1e3s", "999999999w"])
def test_anything_else_is_wrong_usage(written):
    """The message shows what would be right."""
    with pytest.raises(typer.BadParameter, match=r"write 90s|a century"):
        parse_duration(written)


@given(st.text(max_size=12))
def test_no_text_gets_through_otherwise(written):
    """Whatever is typed is a duration that can be subtracted from now, or wrong usage."""
    try:
        duration = parse_duration(written)
    except typer.BadParameter:
        return
    assert timedelta() <= duration <= timedelta(days=36_600)
