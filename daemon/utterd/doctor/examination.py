"""Runs all checks, each within a time limit, and lets none of them end the others."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from utterd.config import Settings
from utterd.doctor.broker import examine_broker
from utterd.doctor.codecs import examine_codecs
from utterd.doctor.engine import examine_engine
from utterd.doctor.finding import Finding, Findings, fault
from utterd.doctor.machine import examine_machine
from utterd.doctor.settings import examine_settings
from utterd.doctor.store import examine_store
from utterd.errors import UtterdError

_DEADLINE_S = 15.0
_STORE_DEADLINE_S = 45.0
_SPEECH_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Group:
    """Checks that belong together.

    Attributes:
        name: what they look at.
        findings: their results; a fault that is raised ends the group.
        if_late: what to do when one of them takes too long.
        deadline_s: how long each of them may take.
    """

    name: str
    findings: Findings
    if_late: str
    deadline_s: float = _DEADLINE_S


def groups(settings: Settings) -> tuple[Group, ...]:
    """All checks of a daemon with these settings; none has begun."""
    speech_s = settings.engine.start_timeout_s + _SPEECH_DEADLINE_S
    return (
        Group("settings", examine_settings(settings), "look at the disk"),
        Group(
            "broker",
            examine_broker(settings.broker),
            "look for a memory or disk alarm of RabbitMQ (`rabbitmqctl status`), and into its log",
        ),
        Group(
            "store",
            examine_store(settings.store),
            "look into the server's log, and at the network between here and there",
            _STORE_DEADLINE_S,
        ),
        Group("codecs", examine_codecs(), "look at this machine's load"),
        Group("machine", examine_machine(settings), "look for a disk that hangs"),
        Group("engine", examine_engine(settings), "look at this machine's load", speech_s),
    )


async def examine(
    examined: Sequence[Group],
) -> AsyncGenerator[tuple[str, Finding], None]:
    """The findings of each group, with its name, as they come."""
    for group in examined:
        async with aclosing(group.findings):
            while (finding := await _next(group)) is not None:
                yield group.name, finding


async def _next(group: Group) -> Finding | None:
    """The next finding; one about the group itself where it was cut short."""
    try:
        async with asyncio.timeout(group.deadline_s):
            return await anext(group.findings, None)
    except TimeoutError:
        return fault("time", f"no answer within {group.deadline_s:g} s: {group.if_late}")
    except UtterdError as error:
        return fault("check", str(error))
