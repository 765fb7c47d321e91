"""The error tree and its way across processes."""

import pytest

from utterd.errors import (
    EnvironmentFaultError,
    InternalError,
    JobError,
    PermanentError,
    TransientError,
    UnknownVoiceError,
    UtterdError,
    WorkerDiedError,
    error_from,
)
from utterd_schemas.errors import ErrorCode, ErrorInfo


def leaves(error: type[JobError]) -> list[type[JobError]]:
    children = error.__subclasses__()
    return [leaf for child in children for leaf in leaves(child)] if children else [error]


def test_each_code_has_exactly_one_class():
    """The tree and the published list say the same."""
    assert sorted(leaf.code for leaf in leaves(JobError)) == sorted(ErrorCode)


@pytest.mark.parametrize("error", leaves(JobError))
def test_a_class_says_whether_to_try_again(error: type[JobError]):
    """Only what is wrong with the job itself is final."""
    assert error.retryable is not issubclass(error, PermanentError)
    assert issubclass(error, PermanentError | TransientError | EnvironmentFaultError)
    assert issubclass(error, UtterdError)


@pytest.mark.parametrize("error", leaves(JobError))
def test_errors_survive_a_process_boundary(error: type[JobError]):
    """Class, message and detail come back from what was written on the wire."""
    original = error("what is wrong, what to do", limit=5, values=["a"])
    wire = original.info().model_dump_json()
    copy = error_from(ErrorInfo.model_validate_json(wire))
    assert type(copy) is error
    assert (copy.message, copy.detail) == (original.message, original.detail)
    assert str(copy) == "what is wrong, what to do"


@pytest.mark.parametrize("name", ["message", "self", "code", "detail"])
def test_a_detail_may_have_any_name(name: str):
    """The names of facts don't clash with those of the error's own."""
    error = UnknownVoiceError("no such voice", **{name: "fact"})
    assert error_from(error.info()).detail == {name: "fact"}


def test_info_is_what_the_event_carries():
    """Code, message, verdict and facts are taken over as they are."""
    assert WorkerDiedError("it died", status=-9).info() == ErrorInfo(
        code=ErrorCode.WORKER_DIED, message="it died", retryable=True, detail={"status": -9}
    )


def test_an_error_without_a_fact_has_no_detail():
    """Detail is optional."""
    assert InternalError("a fault").info().detail == {}
