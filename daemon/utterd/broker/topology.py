"""The exchanges, queues and bindings that utterd lives on, as plain data."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from utterd.config import BrokerSettings, Lane

Argument = str | int | bool

DEAD_ROUTING_KEY = "dead"
LAPSED_ROUTING_KEY = "lapsed"

MANY_DELIVERIES = 1_000_000


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange."""

    name: str
    type: Literal["topic", "direct", "fanout"]
    arguments: Mapping[str, Argument] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable quorum queue."""

    name: str
    arguments: Mapping[str, Argument]


@dataclass(frozen=True, slots=True)
class Binding:
    """From an exchange to a queue."""

    exchange: str
    queue: str
    routing_key: str


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything that is declared, in the order of declaration.

    Attributes:
        queues: all of them.
        exchanges: that of the jobs last, so that a job that comes before its lane is bound finds
            its way to the dead.
        bindings: of these.
    """

    queues: tuple[Queue, ...]
    exchanges: tuple[Exchange, ...]
    bindings: tuple[Binding, ...]

    def bindings_of(self, exchange: Exchange) -> Iterator[Binding]:
        return (binding for binding in self.bindings if binding.exchange == exchange.name)


def routing_key(lane: Lane) -> str:
    """What publishers send a job under."""
    return f"synthesize.{lane}"


def retry_tier(delay_s: int) -> str:
    """The name of a delay, such as `10s`; also its routing key."""
    return f"{delay_s}s"


def topology(settings: BrokerSettings) -> Topology:
    """The topology that these settings describe.

    What a lane gives up by itself lapses: it goes to a queue from which the daemons tell of it,
    and only what kills them there, too, ends among the dead without an event.

    A retry queue has no dead-letter routing key of its own: a job comes back under the key
    that it carries in its `CC` header, and so into its own lane.
    """
    exchanges, queues, limits = settings.exchanges, settings.queues, settings.limits
    retry_queues = {delay_s: queues.of_delay(delay_s) for delay_s in limits.retry_delays_s}
    at_least_once = {
        "x-dead-letter-strategy": "at-least-once",
        # At-least-once dead-lettering is only to be had with this overflow behaviour.
        "x-overflow": "reject-publish",
    }
    fenced: dict[str, Argument] = {
        **at_least_once,
        "x-dead-letter-exchange": exchanges.dead,
        "x-delivery-limit": limits.delivery_limit,
        "x-consumer-timeout": limits.consumer_timeout_s * 1000,
    }
    lane_arguments: dict[str, Argument] = {
        **fenced,
        "x-dead-letter-routing-key": LAPSED_ROUTING_KEY,
        "x-max-length": limits.max_length,
    }
    return Topology(
        queues=(
            # Each look at the dead counts as a delivery, and RabbitMQ 4 has a limit of its own.
            _quorum_queue(queues.dead, {"x-delivery-limit": MANY_DELIVERIES}),
            _quorum_queue(queues.lapsed, {**fenced, "x-dead-letter-routing-key": DEAD_ROUTING_KEY}),
            *(_quorum_queue(queues.of_lane(lane), lane_arguments) for lane in Lane),
            *(
                _quorum_queue(
                    name,
                    {
                        **at_least_once,
                        "x-dead-letter-exchange": exchanges.jobs,
                        "x-message-ttl": delay_s * 1000,
                    },
                )
                for delay_s, name in retry_queues.items()
            ),
        ),
        exchanges=(
            Exchange(exchanges.unrouted, "fanout"),
            Exchange(exchanges.events, "topic"),
            Exchange(exchanges.retry, "direct"),
            Exchange(exchanges.dead, "direct"),
            Exchange(exchanges.control, "fanout"),
            Exchange(exchanges.jobs, "topic", {"alternate-exchange": exchanges.unrouted}),
        ),
        bindings=(
            *(Binding(exchanges.jobs, queues.of_lane(lane), routing_key(lane)) for lane in Lane),
            *(
                Binding(exchanges.retry, name, retry_tier(delay_s))
                for delay_s, name in retry_queues.items()
            ),
            Binding(exchanges.dead, queues.dead, DEAD_ROUTING_KEY),
            Binding(exchanges.dead, queues.lapsed, LAPSED_ROUTING_KEY),
            # A job whose routing key fits no lane is kept with the dead, not dropped.
            Binding(exchanges.unrouted, queues.dead, ""),
        ),
    )


def is_own_queue(name: str, settings: BrokerSettings) -> bool:
    """Whether a queue is one of utterd's, so that a message in it means something to utterd.

    A delay of earlier settings counts as well: its queue may stand still.
    """
    queues = settings.queues
    own = {queues.dead, queues.lapsed, *map(queues.of_lane, Lane)}
    return name in own or bool(re.fullmatch(rf"{re.escape(queues.retry_prefix)}[0-9]+s", name))


def _quorum_queue(name: str, arguments: Mapping[str, Argument] | None = None) -> Queue:
    return Queue(name, {"x-queue-type": "quorum", **(arguments or {})})
