"""What a check says."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How good or bad it is."""

    OK = "ok"
    WARNING = "warning"
    """The daemon works, and yet somebody should know."""
    FAULT = "fault"
    """The daemon can't work so."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: what was looked at.
        verdict: how it is.
        message: what was found, and what to do where it is not fine; never a secret.
    """

    check: str
    verdict: Verdict
    message: str


Findings = AsyncGenerator[Finding, None]
"""The findings of one group, as they come."""


def ok(check: str, message: str) -> Finding:
    return Finding(check, Verdict.OK, message)


def warning(check: str, message: str) -> Finding:
    return Finding(check, Verdict.WARNING, message)


def fault(check: str, message: str) -> Finding:
    return Finding(check, Verdict.FAULT, message)
