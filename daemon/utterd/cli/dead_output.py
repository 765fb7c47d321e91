"""What the commands of `dead` print about a job. Pure."""

import base64
from dataclasses import asdict
from datetime import datetime

from utterd.broker.dead import DeadJob
from utterd.broker.deaths import Death, visible

_UNKNOWN = "unknown"


def summary(dead: DeadJob) -> str:
    """One line: who, why, by which lane."""
    obituary = dead.obituary
    return f"{dead.job_id or _UNKNOWN} ({obituary.reason}, lane {obituary.lane})"


def listed(dead: DeadJob) -> dict[str, object]:
    """The columns of a list; nothing that was to be spoken."""
    obituary = dead.obituary
    return {
        "job": dead.job_id or _UNKNOWN,
        "reason": obituary.reason,
        "lane": str(obituary.lane),
        "attempts": obituary.attempts,
        "died_at": _written(obituary.died_at),
        "bytes": len(dead.incoming.body),
    }


def described(dead: DeadJob, *, with_body: bool) -> dict[str, object]:
    """All that is known about a job; its body only on request."""
    obituary, incoming = dead.obituary, dead.incoming
    facts = listed(dead) | {
        "explanation": obituary.explanation,
        "worker_deaths": obituary.worker_deaths,
        "history": [_death(death) for death in obituary.deaths],
        "routing_key": visible(incoming.routing_key or ""),
        "published_at": _written(incoming.timestamp),
        "content_type": _plain(incoming.content_type),
        "content_encoding": _plain(incoming.content_encoding),
        "headers": _plain(incoming.headers),
    }
    return facts | _body(incoming.body) if with_body else facts


def _death(death: Death) -> dict[str, object]:
    return asdict(death) | {"at": _written(death.at)}


def _body(body: bytes) -> dict[str, object]:
    """Text where it is text; Base64 where it is something else, such as gzip."""
    try:
        return {"body": visible(body.decode("utf-8"))}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}


def _plain(value: object) -> object:
    """A header's value as JSON has it, and harmless on a terminal."""
    match value:
        case bool() | int() | float() | None:
            return value
        case dict():
            return {visible(str(name)): _plain(member) for name, member in value.items()}
        case list():
            return [_plain(member) for member in value]
        case _:
            return visible(str(value))


def _written(instant: datetime | None) -> str:
    return _UNKNOWN if instant is None else instant.isoformat(timespec="seconds")
