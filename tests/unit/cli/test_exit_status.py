"""Which error ends a command with which status."""

import pytest

from utterd.cli.exit_status import ExitStatus, exit_status_of, leaf_error
from utterd.errors import (
    BrokerUnavailableError,
    ConfigurationError,
    EngineFailedError,
    EnvironmentFaultError,
    InvalidFieldError,
    NotNowError,
    PermanentError,
    StoreUnavailableError,
)
from utterd.store.protocol import ObjectNotFoundError


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigurationError("no"), ExitStatus.CONFIGURATION),
        (BrokerUnavailableError("no"), ExitStatus.TRY_AGAIN),
        (StoreUnavailableError("no"), ExitStatus.TRY_AGAIN),
        (NotNowError("no"), ExitStatus.TRY_AGAIN),
        (InvalidFieldError("no"), ExitStatus.BAD_JOB),
        (EngineFailedError("no"), ExitStatus.FAILED),
        (ObjectNotFoundError("no"), ExitStatus.FAILED),
    ],
)
def test_the_class_of_an_error_decides(error, status):
    """Settings, surroundings and job have a status each; the rest has failed."""
    assert exit_status_of(error) is status


def test_the_statuses_of_sysexits_are_kept():
    """Scripts and systemd know these numbers."""
    assert [int(status) for status in ExitStatus] == [0, 1, 2, 65, 75, 78]


def test_the_first_plain_error_of_a_group_is_found():
    """However deep task groups have wrapped it."""
    error = ConfigurationError("no")
    inner = ExceptionGroup("inner", [error, ValueError()])
    assert leaf_error(ExceptionGroup("outer", [inner])) is error
    assert leaf_error(error) is error


def test_no_job_error_is_of_two_kinds():
    """The order of the cases decides nothing."""
    assert not issubclass(PermanentError, EnvironmentFaultError)
    assert not issubclass(EnvironmentFaultError, PermanentError)
