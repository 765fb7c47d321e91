"""How checks are run, whatever they do."""

import asyncio

from utterd.config import Settings
from utterd.doctor.examination import Group, examine, groups
from utterd.doctor.finding import Verdict, fault, ok
from utterd.errors import BrokerUnavailableError, ConfigurationError


async def results(*examined: Group) -> list[tuple[str, str, Verdict]]:
    return [(group, finding.check, finding.verdict) async for group, finding in examine(examined)]


async def two_fine_things():
    yield ok("first", "fine")
    yield ok("second", "fine")


async def test_findings_come_in_order_under_their_groups_name():
    """Each group to its end, then the next."""
    assert await results(
        Group("one", two_fine_things(), "wait"), Group("two", two_fine_things(), "wait")
    ) == [
        ("one", "first", Verdict.OK),
        ("one", "second", Verdict.OK),
        ("two", "first", Verdict.OK),
        ("two", "second", Verdict.OK),
    ]


async def test_a_check_that_takes_too_long_ends_its_group_only():
    """What it held is let go, and the message says where to look."""
    let_go = False

    async def endless():
        nonlocal let_go
        yield ok("first", "fine")
        try:
            await asyncio.Event().wait()
        finally:
            let_go = True
        yield ok("never", "fine")

    examined = (
        Group("late", endless(), "look into the log", deadline_s=0.01),
        Group("next", two_fine_things(), "wait"),
    )
    found = [finding async for finding in examine(examined)]
    assert let_go
    assert [(group, finding.verdict) for group, finding in found] == [
        ("late", Verdict.OK),
        ("late", Verdict.FAULT),
        ("next", Verdict.OK),
        ("next", Verdict.OK),
    ]
    assert found[1][1].message == "no answer within 0.01 s: look into the log"


async def test_an_error_of_ours_is_a_fault_of_its_group():
    """Its message already says what to do."""

    async def broken(error):
        yield ok("first", "fine")
        raise error

    for error in (ConfigurationError("do this"), BrokerUnavailableError("do this")):
        found = [one async for one in examine([Group("broken", broken(error), "wait")])]
        assert found[1:] == [("broken", fault("check", "do this"))]


def test_a_run_is_bounded_in_time():
    """Each group has a limit for each of its findings."""
    examined = groups(Settings())
    assert [group.name for group in examined] == [
        "settings",
        "broker",
        "store",
        "codecs",
        "machine",
        "engine",
    ]
    assert all(0 < group.deadline_s <= 90 for group in examined)
