"""Jobs among the dead: found, sent back to their lane, or dropped.

Each look takes a message off the queue without settling it. What is not acted on goes back when the
look ends, and the broker itself gives it back when the looker is killed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from aio_pika import DeliveryMode
from aio_pika import Message as AmqpMessage
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aio_pika.exceptions import ChannelNotFoundEntity
from aiormq.exceptions import ChannelAccessRefused

from utterd.broker.amqp_delivery import AmqpDelivery
from utterd.broker.connection import BROKER_ERRORS, connect, losses_raised
from utterd.broker.foreign_headers import publishers_headers, sendable
from utterd.broker.message import Delivery
from utterd.broker.obituary import Obituary, read_obituary
from utterd.broker.submit import submit
from utterd.config import BrokerSettings, Lane
from utterd.errors import BrokerUnavailableError, ConfigurationError

IdentifyJob = Callable[[Delivery], str | None]
"""The id of the job in a delivery, where anything in it tells one."""

_MAX_SHORT_STRING_BYTES = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which dead jobs to look for; None asks for nothing.

    A job of which nobody knows when it died is neither older nor newer than any instant.
    """

    job_id: str | None = None
    reason: str | None = None
    died_before: datetime | None = None
    died_after: datetime | None = None

    @property
    def is_everything(self) -> bool:
        """Whether every dead job is wanted."""
        return self == Wanted()

    def matches(self, dead: "DeadJob") -> bool:
        obituary = dead.obituary
        died_at = obituary.died_at
        return (
            self.job_id in (None, dead.job_id)
            and self.reason in (None, obituary.reason)
            and (self.died_before is None or (died_at is not None and died_at < self.died_before))
            and (self.died_after is None or (died_at is not None and died_at > self.died_after))
        )


@dataclass(frozen=True, slots=True, eq=False)
class DeadJob:
    """One job among the dead, held until the look ends.

    Attributes:
        job_id: None when nothing in the message tells it.
        obituary: how it died.
        incoming: the message, unsettled.
    """

    job_id: str | None
    obituary: Obituary
    incoming: AbstractIncomingMessage


@dataclass(frozen=True, slots=True)
class DeadJobs:
    """The queue of the dead, through one connection; made by `open_dead`.

    Every coroutine raises `BrokerUnavailableError` when the broker is lost. No job is then: it is
    dead still, or in its lane, or in both.
    """

    settings: BrokerSettings
    identify: IdentifyJob
    connection: AbstractConnection
    channel: AbstractChannel

    async def count(self) -> int:
        """How many there are, but for those that somebody looks at.

        Raises:
            ConfigurationError: there is no such queue on the broker.
        """
        with self._faults_explained():
            queue = await self.channel.declare_queue(self.settings.queues.dead, passive=True)
        return queue.declaration_result.message_count or 0

    async def find(self, wanted: Wanted, limit: int | None = None) -> AsyncIterator[DeadJob]:
        """Dead jobs in the order of the queue, at most `limit` of them.

        Raises:
            ConfigurationError: there is no such queue, or the broker's user may not read it.
        """
        queue = await self.channel.get_queue(self.settings.queues.dead, ensure=False)
        found = 0
        # No more than there are now: a job that is sent back may die again meanwhile.
        for _ in range(await self.count()):
            if found == limit:
                return
            with self._faults_explained():
                incoming = await queue.get(fail=False)
            if incoming is None:
                return
            dead = self._read(incoming)
            if wanted.matches(dead):
                found += 1
                yield dead

    def _read(self, incoming: AbstractIncomingMessage) -> DeadJob:
        # Only to be read; it is settled here.
        delivery = AmqpDelivery(incoming, Lane.BATCH, asyncio.Event())
        obituary = read_obituary(delivery.message, self.settings)
        return DeadJob(self.identify(delivery), obituary, incoming)

    async def replay(self, dead: DeadJob) -> None:
        """Send a job back to its lane under its own id, as if it had never been tried.

        Raises:
            ConfigurationError: there is no such lane on the broker.
            LaneFullError: the lane has no room; the job stays dead.
        """
        await submit(self.connection, self.settings, _as_published(dead), dead.obituary.lane)
        await self.drop(dead)

    async def drop(self, dead: DeadJob) -> None:
        """Forget a job for good."""
        with self._faults_explained():
            await dead.incoming.ack()

    async def give_back(self) -> None:
        """Return everything that is held; the broker does so itself when it loses us."""
        with suppress(*BROKER_ERRORS), losses_raised():
            underlay = await self.channel.get_underlay_channel()
            # Tag 0 stands for all of them.
            await underlay.basic_nack(0, multiple=True, requeue=True)

    @contextmanager
    def _faults_explained(self) -> Iterator[None]:
        name = self.settings.queues.dead
        try:
            with losses_raised():
                yield
        except ChannelNotFoundEntity as error:
            raise ConfigurationError(
                f"the broker has no queue {name}: run `utterd topology apply`, or start a daemon"
            ) from error
        except ChannelAccessRefused as error:
            raise ConfigurationError(
                f"the broker's user may not read the queue {name}: grant it the right"
            ) from error
        except BROKER_ERRORS as error:
            raise BrokerUnavailableError(
                "the connection to the broker was lost: look again when it is back"
            ) from error


@asynccontextmanager
async def open_dead(
    settings: BrokerSettings, name: str, identify: IdentifyJob
) -> AsyncIterator[DeadJobs]:
    """A look at the dead for the length of the block; what is left goes back at its end.

    Args:
        settings: which broker.
        name: how the broker's own tools list the connection.
        identify: tells the id of a job.

    Raises:
        BrokerUnavailableError: the broker can't be reached, or refuses the login.
    """
    async with await connect(settings, name) as connection:
        dead = DeadJobs(settings, identify, connection, await connection.channel())
        try:
            yield dead
        finally:
            await dead.give_back()


def _as_published(dead: DeadJob) -> AmqpMessage:
    """The message as its publisher would send it now."""
    incoming = dead.incoming
    return AmqpMessage(
        incoming.body,
        content_type=incoming.content_type,
        content_encoding=incoming.content_encoding,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=_short(dead.job_id) or incoming.message_id,
        correlation_id=incoming.correlation_id,
        reply_to=incoming.reply_to,
        priority=incoming.priority,
        type=incoming.type,
        app_id=incoming.app_id,
        # Its wait begins anew, and a cancellation of its first life is over.
        timestamp=datetime.now(UTC),
        headers=sendable(publishers_headers(incoming.headers)),
    )


def _short(job_id: str | None) -> str | None:
    """An id where AMQP can carry it; without it, an id made from a message would change."""
    return job_id if job_id and len(job_id.encode()) <= _MAX_SHORT_STRING_BYTES else None
