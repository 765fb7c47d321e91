"""A daemon that kills itself at a named step of a job's way."""

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from utterd.__main__ import main
from utterd.broker.amqp_delivery import AmqpDelivery
from utterd.broker.publisher import Publisher
from utterd.engines.host import EngineHost
from utterd.jobs import runner
from utterd.jobs.plan import Planner
from utterd.store.s3 import S3ObjectStore
from utterd_schemas.events import EventType

STATUS = -signal.SIGKILL
"""How such a daemon ends."""


class Moment(Enum):
    """When, in relation to a call."""

    BEFORE = auto()
    DURING = auto()
    """At the first point where the call waits for somebody."""
    AFTER = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """A call on a job's way.

    Attributes:
        moment: when the daemon dies.
        owner: the module or class that the call is looked up in.
        name: of the function.
        call: which call of it, counted from 1.
        event: of which type the event must be that is sent.
    """

    moment: Moment
    owner: object
    name: str
    call: int = 1
    event: EventType | None = None


_BEFORE, _DURING, _AFTER = Moment

STEPS: Mapping[str, Step] = {
    "decoded": Step(_AFTER, runner, "decode"),
    "planned": Step(_AFTER, Planner, "plan"),
    "looked up": Step(_AFTER, runner, "lookup"),
    "started event unconfirmed": Step(_DURING, Publisher, "send", event=EventType.STARTED),
    "started event confirmed": Step(_AFTER, Publisher, "send", event=EventType.STARTED),
    "first segment queued": Step(_DURING, EngineHost, "speak"),
    "first segment spoken": Step(_AFTER, EngineHost, "speak"),
    "last segment spoken": Step(_AFTER, EngineHost, "speak", call=2),
    "encoded": Step(_AFTER, runner, "finish"),
    "before the marks are put": Step(_BEFORE, S3ObjectStore, "put"),
    "marks put, audio not": Step(_AFTER, S3ObjectStore, "put"),
    "audio put unanswered": Step(_DURING, S3ObjectStore, "put", call=2),
    "audio put": Step(_AFTER, S3ObjectStore, "put", call=2),
    "before the completed event": Step(_BEFORE, Publisher, "send", event=EventType.COMPLETED),
    "completed event unconfirmed": Step(_DURING, Publisher, "send", event=EventType.COMPLETED),
    "completed event confirmed": Step(_AFTER, Publisher, "send", event=EventType.COMPLETED),
    "before the ack": Step(_BEFORE, AmqpDelivery, "ack"),
    "ack on its way": Step(_DURING, AmqpDelivery, "ack"),
    "acked": Step(_AFTER, AmqpDelivery, "ack"),
}
"""The way of a job of two sentences that wants marks."""

FAILURE_STEPS: Mapping[str, Step] = {
    "failed event confirmed": Step(_AFTER, Publisher, "send", event=EventType.FAILED),
    "buried unconfirmed": Step(_DURING, Publisher, "bury"),
    "buried": Step(_AFTER, Publisher, "bury"),
    "buried and acked": Step(_AFTER, AmqpDelivery, "ack"),
}
"""The way of a job that can't be spoken."""

RETRY_STEPS: Mapping[str, Step] = {
    "before it is postponed": Step(_BEFORE, Publisher, "postpone"),
    "postponed unconfirmed": Step(_DURING, Publisher, "postpone"),
    "postponed": Step(_AFTER, Publisher, "postpone"),
    "postponed and acked": Step(_AFTER, AmqpDelivery, "ack"),
}
"""The way of a job whose first attempt fails."""


def run(step_name: str | None, environ: Mapping[str, str], log_path: Path) -> None:
    """`utterd run` in this process, which ends at the step; an ordinary daemon without one."""
    os.environ.clear()
    os.environ.update(environ)
    sys.path[:0] = environ["PYTHONPATH"].split(os.pathsep)
    with log_path.open("wb") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    if step_name is not None:
        step = {**STEPS, **FAILURE_STEPS, **RETRY_STEPS}[step_name]
        deadly = _deadly(step, getattr(step.owner, step.name))
        setattr(step.owner, step.name, deadly)
    sys.argv = ["utterd", "run"]
    main()


def _deadly(step: Step, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, but that the process ends at the step."""
    calls = 0

    def is_due(arguments: tuple[object, ...]) -> bool:
        nonlocal calls
        if step.event is not None and getattr(arguments[-1], "type", None) is not step.event:
            return False
        calls += 1
        return calls == step.call

    @functools.wraps(function)
    def blocking(*args: object, **kwargs: object) -> object:
        if not is_due(args):
            return function(*args, **kwargs)
        result = function(*args, **kwargs)
        _die()
        return result

    @functools.wraps(function)
    async def waiting(*args: object, **kwargs: object) -> object:
        if not is_due(args):
            return await function(*args, **kwargs)
        if step.moment is Moment.DURING:
            # Runs the call up to where it would wait.
            function(*args, **kwargs).send(None)
        if step.moment is not Moment.AFTER:
            _die()
        result = await function(*args, **kwargs)
        _die()
        return result

    return waiting if inspect.iscoroutinefunction(function) else blocking


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
