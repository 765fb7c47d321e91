"""Exit statuses, after sysexits.h where it has a fitting one."""

from enum import IntEnum

from utterd.errors import (
    ConfigurationError,
    EnvironmentFaultError,
    NotNowError,
    PermanentError,
)


class ExitStatus(IntEnum):
    """What the status of each command means."""

    OK = 0
    FAILED = 1
    """The work was done and did not succeed: a job failed, a check found a fault."""
    USAGE = 2
    """The command line is wrong."""
    BAD_JOB = 65
    """The job is not valid; it was not published."""
    TRY_AGAIN = 75
    """The broker, the store or a daemon can't be reached now, a lane is full, or memory or time is
    short to load the engine."""
    CONFIGURATION = 78
    """The settings, the host or the broker's topology need a person."""


def exit_status_of(error: BaseException) -> ExitStatus:
    match error:
        case ConfigurationError():
            return ExitStatus.CONFIGURATION
        case EnvironmentFaultError() | NotNowError():
            return ExitStatus.TRY_AGAIN
        case PermanentError():
            return ExitStatus.BAD_JOB
        case _:
            return ExitStatus.FAILED


def leaf_error(error: BaseException) -> BaseException:
    """The first plain exception in a tree of exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
