"""Log lines, as they reach standard error."""

import io
import json
import logging
import sys

import pytest
import structlog

from utterd.config import LogSettings
from utterd.ops.logging import configure_logging

MARKER = "zebra-quartz"


@pytest.fixture
def log_lines(monkeypatch):
    """Configure logging, log, and return the lines; all is as before afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level

    def lines(log, **settings):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        configure_logging(LogSettings(**settings))
        log()
        return stream.getvalue().splitlines()

    yield lines
    root.handlers[:], level = before
    root.setLevel(level)
    structlog.reset_defaults()


def _fail(text):
    kept_in_a_local_variable = text
    try:
        int(kept_in_a_local_variable)
    except ValueError as error:
        raise ExceptionGroup(text, [KeyError(text)]) from error


def test_an_event_is_one_line_of_json(log_lines):
    """With its level, its logger, its fields and the time in UTC."""
    (line,) = log_lines(lambda: structlog.get_logger("a").info("job_completed", key="k"))
    event = json.loads(line)
    assert event["timestamp"].endswith("Z")
    assert (event["event"], event["level"], event["logger"], event["key"]) == (
        "job_completed",
        "info",
        "a",
        "k",
    )


def test_libraries_log_in_the_same_way(log_lines):
    """The standard library's records get the same fields."""
    (line,) = log_lines(lambda: logging.getLogger("b").warning("%s ended", "it"))
    assert json.loads(line)["event"] == "it ended"


def test_what_is_less_severe_is_left_out(log_lines):
    """The level is a setting."""
    assert log_lines(lambda: structlog.get_logger("c").info("small"), level="warning") == []


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("name", ["structlog", "logging"])
def test_an_exception_is_told_without_its_words(log_lines, style, name):
    """Its types and lines are there; messages and variables, which may hold a text, are not."""

    def log():
        try:
            _fail(MARKER)
        except ExceptionGroup:
            module = structlog.get_logger("d") if name == "structlog" else logging.getLogger("e")
            module.exception("job_met_a_bug")

    printed = "\n".join(log_lines(log, format=style))
    assert "job_met_a_bug" in printed
    for part in ("ValueError", "KeyError", "ExceptionGroup", "test_logging.py", "_fail"):
        assert part in printed
    assert MARKER not in printed


def test_a_part_can_have_a_level_of_its_own(log_lines):
    """One is looked at closely while the others stay quiet."""

    def log():
        for part in ("utterd.broker.consumer", "utterd.store.s3"):
            structlog.get_logger(part).debug("seen")

    lines = log_lines(log, level="warning", levels={"utterd.broker": "debug"})
    assert [json.loads(line)["logger"] for line in lines] == ["utterd.broker.consumer"]


def test_a_level_is_taken_back_when_the_settings_no_longer_hold_it(log_lines):
    """After a reload, nobody has to remember what was set before."""

    def log():
        structlog.get_logger("utterd.broker.consumer").debug("seen")

    assert log_lines(log, level="warning", levels={"utterd.broker": "debug"})
    assert not log_lines(log, level="warning")
