"""Whether parsed JSON is a job, and if not, a refusal that quotes nothing of it."""

from difflib import get_close_matches

from pydantic import ValidationError

from utterd.errors import (
    InvalidFieldError,
    InvalidJsonError,
    PermanentError,
    UnknownFieldError,
)
from utterd_schemas.job import FIELD_NAMES, Job

# The comparison takes quadratic time, and a stranger chooses the name.
_MAX_COMPARED_CHARS = 64
_MAX_REASONS = 4


def validate_job(data: object) -> Job:
    """The job in parsed JSON.

    Raises:
        InvalidFieldError: it is no object, or a field has an illegal value.
        UnknownFieldError: it has a field that no job has.
        InvalidJsonError: it is nested too deeply.
    """
    if not isinstance(data, dict):
        raise InvalidFieldError("a job is a JSON object: send one")
    try:
        return Job.model_validate(data)
    except ValidationError as error:
        raise _refusal(error) from None
    except RecursionError:
        raise InvalidJsonError("the JSON is nested too deeply: a job is a flat object") from None


def _refusal(error: ValidationError) -> PermanentError:
    faults = error.errors(include_input=False, include_url=False, include_context=False)
    unknown = [str(fault["loc"][0]) for fault in faults if fault["type"] == "extra_forbidden"]
    if unknown:
        near = get_close_matches(unknown[0][:_MAX_COMPARED_CHARS], FIELD_NAMES, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "put notes of your own into `labels`"
        return UnknownFieldError(
            f"the job has {len(unknown)} unknown field(s): {hint}",
            known_fields=[*sorted(FIELD_NAMES)],
        )
    fields = sorted({_field_name(fault["loc"]) for fault in faults})
    reasons = "; ".join(
        f"`{_field_name(fault['loc'])}`: {fault['msg'].removeprefix('Value error, ')}"
        for fault in faults[:_MAX_REASONS]
    )
    return InvalidFieldError(f"the job is not valid. {reasons}", fields=[*fields])


def _field_name(location: tuple[int | str, ...]) -> str:
    """The field that a fault is in; names that the publisher chose are left out."""
    return str(location[0]) if location and location[0] in FIELD_NAMES else "job"
