"""The error tree. An error's class decides what happens to the job that met it.

Every `JobError` has a stable `code`, says whether the same job may succeed later, and
its message tells the reader what to do next. Messages never contain a job's text.
"""

from collections.abc import Iterator
from typing import ClassVar

from pydantic import JsonValue

from utterd_schemas.errors import ErrorCode, ErrorInfo


class UtterdError(Exception):
    """Whatever utterd raises on purpose."""


class ConfigurationError(UtterdError):
    """The settings, the host or the broker's topology must be changed by a person."""


class NotNowError(UtterdError):
    """Nobody has to change what was asked for, but it has to wait: the same can succeed later."""


class JobError(UtterdError):
    """One job can't be finished as it stands.

    Args:
        message: a sentence for a person, without the job's text.
        detail: facts for a program, such as the values that are legal.
    """

    code: ClassVar[ErrorCode]
    retryable: ClassVar[bool]

    def __init__(self, message: str, /, **detail: JsonValue) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail

    def info(self) -> ErrorInfo:
        return ErrorInfo(
            code=self.code, message=self.message, retryable=self.retryable, detail=self.detail
        )


class PermanentError(JobError):
    """The job itself is wrong: the same job fails again."""

    retryable = False


class TransientError(JobError):
    """This attempt failed; another one can succeed."""

    retryable = True


class EnvironmentFaultError(JobError):
    """Something around the daemon is down. It is not the job's fault and burns no attempt."""

    retryable = True


class MessageTooLargeError(PermanentError):
    code = ErrorCode.MESSAGE_TOO_LARGE


class InvalidEncodingError(PermanentError):
    code = ErrorCode.INVALID_ENCODING


class InvalidJsonError(PermanentError):
    code = ErrorCode.INVALID_JSON


class InvalidEnvelopeError(PermanentError):
    code = ErrorCode.INVALID_ENVELOPE


class InvalidFieldError(PermanentError):
    code = ErrorCode.INVALID_FIELD


class UnknownFieldError(PermanentError):
    code = ErrorCode.UNKNOWN_FIELD


class EmptyTextError(PermanentError):
    code = ErrorCode.EMPTY_TEXT


class TextTooLongError(PermanentError):
    code = ErrorCode.TEXT_TOO_LONG


class InvalidSsmlError(PermanentError):
    code = ErrorCode.INVALID_SSML


class UnknownVoiceError(PermanentError):
    code = ErrorCode.UNKNOWN_VOICE


class UnsupportedLanguageError(PermanentError):
    code = ErrorCode.UNSUPPORTED_LANGUAGE


class UnsupportedOutputError(PermanentError):
    code = ErrorCode.UNSUPPORTED_OUTPUT


class UnsupportedMarksError(PermanentError):
    code = ErrorCode.UNSUPPORTED_MARKS


class EngineFailedError(TransientError):
    code = ErrorCode.ENGINE_FAILED


class InvalidAudioError(TransientError):
    code = ErrorCode.INVALID_AUDIO


class WorkerDiedError(TransientError):
    code = ErrorCode.WORKER_DIED


class DeadlineExceededError(TransientError):
    code = ErrorCode.DEADLINE_EXCEEDED


class DeliveryLimitError(TransientError):
    code = ErrorCode.DELIVERY_LIMIT


class InternalError(TransientError):
    code = ErrorCode.INTERNAL_ERROR


class StoreUnavailableError(EnvironmentFaultError):
    code = ErrorCode.STORE_UNAVAILABLE


class BrokerUnavailableError(EnvironmentFaultError):
    code = ErrorCode.BROKER_UNAVAILABLE


def _leaves(error: type[JobError]) -> Iterator[type[JobError]]:
    if "code" in vars(error):
        yield error
    for child in error.__subclasses__():
        yield from _leaves(child)


def error_from(info: ErrorInfo) -> JobError:
    """The error that `info` was made from, for faults that crossed a process boundary."""
    kind = next((leaf for leaf in _leaves(JobError) if leaf.code is info.code), InternalError)
    return kind(info.message, **info.detail)
