"""What the daemon is doing, in words for a person and in facts for a program."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """What a daemon does as a whole."""

    STARTING = "starting"
    CONNECTING = "connecting"
    CONSUMING = "consuming"
    PAUSED = "paused"
    HOLDING_OFF = "holding_off"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A moment of the daemon.

    Attributes:
        state: what it does.
        sentence: the same for a person, in one line; no text of a job, no secret.
        slots: segments that can be spoken at once.
        busy: slots that speak.
        waiting: segments that wait for a slot.
        in_hand: jobs that are being worked on.
        queued: messages that are ready, by queue, as far as known.
        faults: why no jobs are taken: broken parts, and a sentence about each.
        workers: engine workers that are up.
        checks: what readiness asks for, by name.
    """

    state: State
    sentence: str
    slots: int
    busy: int
    waiting: int
    in_hand: int
    queued: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    workers: int = 0
    checks: Mapping[str, bool] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether a job that is published now would be taken by this daemon."""
        return all(self.checks.values())


StatusSource = Callable[[], Status]


def sentence_of(
    state: State,
    *,
    slots: int,
    busy: int,
    in_hand: int,
    queued: int | None,
    faults: Mapping[str, str],
    broker: str,
) -> str:
    """One line for `systemctl status`.

    Args:
        state: what the daemon does.
        slots: segments that can be spoken at once.
        busy: slots that speak.
        in_hand: jobs that are being worked on.
        queued: jobs that wait at the broker; None when it has not told.
        faults: broken parts, and a sentence about each.
        broker: host and port.
    """
    match state:
        case State.STARTING:
            return "starting: loading the engine"
        case State.CONNECTING:
            return f"connecting: waiting for RabbitMQ at {broker}"
        case State.PAUSED:
            return "paused: " + "; ".join(faults.values())
        case State.HOLDING_OFF:
            return "holding off: jobs were only taken to be given back, until all stays well"
        case State.DRAINING:
            return f"draining: {in_hand} {'job' if in_hand == 1 else 'jobs'} in hand"
        case State.CONSUMING:
            backlog = "" if queued is None else f", {queued} queued"
            return f"consuming, {busy} of {slots} busy{backlog}"
