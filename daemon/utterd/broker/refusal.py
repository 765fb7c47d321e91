"""What it means that the broker did not take a message, and what to do about it. Pure."""

from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError
from aiormq.exceptions import ChannelPreconditionFailed, ConnectionFrameError, PublishError

_ROOM = {
    "dead": "look at the jobs with `utterd dead list` and replay or purge them",
    "retry": "wait until its jobs have gone back to their lanes",
    "events": "let its subscriber catch up",
}


def blames_the_message(fault: Exception) -> bool:
    """Whether the same message would be refused again, however well the broker is."""
    return isinstance(fault, ConnectionFrameError | ChannelPreconditionFailed)


def explained(fault: Exception, exchange: str, target: str, use: str) -> str:
    """A refusal as a sentence that says what to do.

    Args:
        fault: as aio-pika tells it.
        exchange: that was published to.
        target: the queue behind it, in words.
        use: of the exchange: `dead`, `retry` or `events`.
    """
    match fault:
        case PublishError():
            return f"{target} is missing, or not bound to {exchange!r}: run `utterd topology apply`"
        case DeliveryError():
            return (
                f"{target} takes no more: {_ROOM[use]}, or raise the limit that a policy or its"
                " arguments (x-max-length) set. Where it is not full, look for queues without a"
                " leader, with `rabbitmq-diagnostics check_if_node_is_quorum_critical`"
            )
        case ChannelNotFoundEntity():
            return f"{_words(fault)}: run `utterd topology apply`"
        case _:
            return _words(fault)


def _words(fault: Exception) -> str:
    return (str(fault) or type(fault).__name__)[:200]
