"""A broker in memory."""

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from utterd.broker.event import Event
from utterd.broker.message import History, Message
from utterd.config import BrokerSettings, ExchangeNames, Lane, QueueNames
from utterd.errors import JobError


class Settlement(StrEnum):
    """What became of a delivery."""

    ACKED = "acked"
    REJECTED = "rejected"
    RELEASED = "released"


class InMemoryDelivery:
    """A `Delivery` that remembers its settlement.

    Its three settlements raise RuntimeError when the delivery was settled before; RabbitMQ
    would close the channel.

    Attributes:
        settlement: None until it is settled.
        is_lost: whether it counts as taken back; a test may set it.
    """

    def __init__(self, broker: "InMemoryBroker", message: Message, lane: Lane) -> None:
        self._broker = broker
        self._message = message
        self._lane = lane
        self._settled = asyncio.Event()
        self.settlement: Settlement | None = None
        self.is_lost = False

    @property
    def message(self) -> Message:
        return self._message

    @property
    def lane(self) -> Lane:
        return self._lane

    async def ack(self) -> None:
        self._settle(Settlement.ACKED)

    async def reject(self) -> None:
        self._settle(Settlement.REJECTED)
        self._broker.dead.append(DeadJob(self._message, None))

    async def release(self) -> None:
        self._settle(Settlement.RELEASED)
        self._broker.released.append(self._message)

    async def settled(self) -> Settlement:
        """Wait for the settlement."""
        await self._settled.wait()
        assert self.settlement is not None  # noqa: S101 - set before the event
        return self.settlement

    def _settle(self, settlement: Settlement) -> None:
        if self.settlement is not None:
            raise RuntimeError(f"{self.settlement} already, and now to be {settlement}")
        self.settlement = settlement
        self._settled.set()


@dataclass(frozen=True, slots=True)
class DeadJob:
    """A job among the dead.

    Attributes:
        message: as it came.
        error: why it was buried; None when it was rejected instead.
    """

    message: Message
    error: JobError | None


@dataclass(frozen=True, slots=True)
class PostponedJob:
    """A job that waits for its next attempt.

    Attributes:
        message: as it came.
        lane: that it comes back by.
        history: that it comes back with.
        delay_s: how long it waits.
    """

    message: Message
    lane: Lane
    history: History
    delay_s: int


class InMemoryBroker:
    """An `EventSink`, and a source of deliveries, that forgets everything with the process.

    It confirms at once, until `hold_confirms` is called.

    Attributes:
        events: what subscribers got, in order.
        replies: the copies that went to a `reply_to`, with the queue's name, in order.
        dead: jobs that were buried or rejected, in order.
        postponed: jobs that wait for their next attempt, in order.
        released: messages that were given back, in order.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.replies: list[tuple[str, Event]] = []
        self.dead: list[DeadJob] = []
        self.postponed: list[PostponedJob] = []
        self.released: list[Message] = []
        self._confirming = asyncio.Event()
        self._confirming.set()
        self._unconfirmed = 0
        self._changed = asyncio.Condition()

    def deliver(self, message: Message, lane: Lane = Lane.INTERACTIVE) -> InMemoryDelivery:
        """Hand over a message, as the broker does to a consumer."""
        return InMemoryDelivery(self, message, lane)

    def hold_confirms(self) -> None:
        """Leave whatever is sent from now on unconfirmed, as a broker in trouble does."""
        self._confirming.clear()

    def confirm(self) -> None:
        """Confirm what waits, and again at once what comes."""
        self._confirming.set()

    async def unconfirmed(self, count: int = 1) -> None:
        """Wait until at least `count` events or dead jobs wait for their confirm."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._unconfirmed >= count)

    async def wait_for_events(self, count: int) -> list[Event]:
        """Wait until at least `count` events were sent; returns all of them."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.events) >= count)
        return list(self.events)

    async def send(self, event: Event) -> None:
        await self._confirmed()
        self.events.append(event)
        if event.reply_to and event.type.is_terminal:
            self.replies.append((event.reply_to, event))
        await self._announce_change()

    async def bury(self, message: Message, error: JobError) -> None:
        await self._confirmed()
        self.dead.append(DeadJob(message, error))

    async def postpone(
        self, message: Message, lane: Lane, history: History, *, delay_s: int
    ) -> None:
        await self._confirmed()
        self.postponed.append(PostponedJob(message, lane, history, delay_s))

    async def _confirmed(self) -> None:
        self._unconfirmed += 1
        try:
            await self._announce_change()
            await self._confirming.wait()
        finally:
            self._unconfirmed -= 1

    async def _announce_change(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def with_own_names(settings: BrokerSettings, prefix: str) -> BrokerSettings:
    """The same broker under exchanges and queues whose names nobody else uses.

    Args:
        settings: whose broker.
        prefix: comes before each name, such as the test's own.
    """
    exchanges = {name: f"{prefix}.{own}" for name, own in settings.exchanges}
    queues = {name: f"{prefix}.{own}" for name, own in settings.queues}
    return settings.model_copy(
        update={"exchanges": ExchangeNames(**exchanges), "queues": QueueNames(**queues)}
    )
