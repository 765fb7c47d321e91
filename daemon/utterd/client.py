"""The other side of the broker: publish jobs, call them off, await and watch events."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from aio_pika import DeliveryMode, Message
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError
from aiormq.exceptions import ChannelAccessRefused
from pydantic import JsonValue

from utterd.broker.connection import BROKER_ERRORS, connect, losses_raised
from utterd.broker.control import cancel_order
from utterd.broker.submit import submit
from utterd.config import BrokerSettings, Lane
from utterd.errors import BrokerUnavailableError, ConfigurationError, NotNowError
from utterd_schemas.events import CONTENT_TYPE, HEADER_PREFIX, EventType
from utterd_schemas.job import Job

ReceivedEvent = dict[str, JsonValue]
"""A CloudEvent in structured form: the attributes, and the payload under `data`."""

_TYPES = frozenset(str(kind) for kind in EventType)
_TERMINAL_TYPES = frozenset(str(kind) for kind in EventType if kind.is_terminal)

_MAX_SHORT_STRING_BYTES = 255
_WAIT_ON = "check that a daemon runs (`utterd run`), or wait for the event with `utterd watch`"
_MAY_HAVE_ENDED = (
    "it may have ended before the order, or waits in a lane until a daemon gets it: `utterd watch`"
    " would show that end"
)
_LOST = "the connection to the broker was lost: try again when it is back"


class NoOutcomeError(NotNowError):
    """No daemon ended the job in time."""


@dataclass(frozen=True, slots=True)
class Client:
    """Talks to daemons through one connection; made by `open_client`."""

    settings: BrokerSettings
    connection: AbstractConnection

    async def publish(self, job: Job, lane: Lane, *, reply_to: str | None = None) -> str:
        """Publish a job; returns its id once the broker has confirmed it.

        Raises:
            ConfigurationError: there is no such lane on the broker.
            LaneFullError: the lane holds as many jobs as it may.
            BrokerUnavailableError: the broker did not confirm in time.
        """
        job_id = job.job_id or str(uuid4())
        message = Message(
            job.model_dump_json(by_alias=True, exclude_unset=True).encode(),
            content_type="application/json",
            delivery_mode=DeliveryMode.PERSISTENT,
            message_id=job_id if len(job_id.encode()) <= _MAX_SHORT_STRING_BYTES else None,
            timestamp=datetime.now(UTC),
            reply_to=reply_to,
        )
        await submit(self.connection, self.settings, message, lane)
        return job_id

    async def publish_and_wait(self, job: Job, lane: Lane, *, timeout_s: float) -> ReceivedEvent:
        """Publish a job and return its terminal event.

        Raises:
            ConfigurationError: there is no such lane on the broker.
            LaneFullError: the lane holds as many jobs as it may.
            BrokerUnavailableError: the broker was lost.
            NoOutcomeError: no terminal event came within `timeout_s`.
        """
        async with self._private_queue() as queue:
            job_id = await self.publish(job, lane, reply_to=queue.name)
            outcomes = await _outcomes(queue, [job_id], timeout_s=timeout_s, advice=_WAIT_ON)
        return outcomes[job_id]

    async def cancel(self, job_ids: Collection[str]) -> None:
        """Call jobs off; returns when the broker has handed the orders to all running daemons.

        Raises:
            ConfigurationError: there is no control exchange on the broker.
            BrokerUnavailableError: no daemon runs, or the broker did not confirm.
        """
        name = self.settings.exchanges.control
        try:
            with losses_raised():
                async with self.connection.channel(on_return_raises=True) as channel:
                    control = await channel.get_exchange(name)
                    for job_id in job_ids:
                        await control.publish(
                            cancel_order(job_id), "", timeout=self.settings.publish_timeout_s
                        )
        except ChannelNotFoundEntity as error:
            raise ConfigurationError(_no_exchange(name)) from error
        except ChannelAccessRefused as error:
            raise ConfigurationError(
                f"the broker's user may not write to {name!r}: grant it that right to call jobs off"
                " (docs/security.md)"
            ) from error
        except DeliveryError as error:
            raise BrokerUnavailableError(
                "no daemon heard the order, and orders are not kept: start one (`utterd run`) and"
                " cancel again"
            ) from error
        except BROKER_ERRORS as error:
            raise BrokerUnavailableError(
                f"the broker did not confirm the order ({type(error).__name__}): cancel again,"
                " it does no harm"
            ) from error

    async def cancel_and_wait(
        self, job_ids: Collection[str], *, timeout_s: float
    ) -> dict[str, ReceivedEvent]:
        """Call jobs off and return their terminal events by id, however they ended.

        Raises:
            ConfigurationError: an exchange is missing on the broker.
            BrokerUnavailableError: no daemon runs, or the broker was lost.
            NoOutcomeError: some job had no terminal event within `timeout_s`.
        """
        async with self._private_queue() as queue:
            await self._subscribe(queue, "synthesis.*")
            await self.cancel(job_ids)
            return await _outcomes(queue, job_ids, timeout_s=timeout_s, advice=_MAY_HAVE_ENDED)

    async def watch(self, pattern: str = "#") -> AsyncIterator[ReceivedEvent]:
        """Events as they come, from now on.

        Args:
            pattern: AMQP topic pattern, such as `synthesis.failed`.

        Raises:
            ConfigurationError: there is no event exchange on the broker.
            BrokerUnavailableError: the broker was lost.
        """
        async with self._private_queue() as queue:
            await self._subscribe(queue, pattern)
            async with aclosing(_events(queue)) as events:
                async for event in events:
                    yield event

    async def _subscribe(self, queue: AbstractQueue, pattern: str) -> None:
        name = self.settings.exchanges.events
        try:
            await queue.bind(name, pattern)
        except ChannelNotFoundEntity as error:
            raise ConfigurationError(_no_exchange(name)) from error

    @asynccontextmanager
    async def _private_queue(self) -> AsyncIterator[AbstractQueue]:
        try:
            with losses_raised():
                async with self.connection.channel() as channel:
                    # Exclusive: RabbitMQ 4.3 refuses transient queues that are not.
                    yield await channel.declare_queue(exclusive=True)
        except ChannelAccessRefused as error:
            raise ConfigurationError(
                "the broker's user may not listen: grant it queues of its own and the right to read"
                " events (docs/security.md)"
            ) from error
        except BROKER_ERRORS as error:
            raise BrokerUnavailableError(_LOST) from error


@asynccontextmanager
async def open_client(settings: BrokerSettings, name: str) -> AsyncIterator[Client]:
    """A client for the length of the block.

    Raises:
        BrokerUnavailableError: the broker can't be reached or refuses the login.
    """
    async with await connect(settings, name) as connection:
        yield Client(settings, connection)


async def _outcomes(
    queue: AbstractQueue, job_ids: Collection[str], *, timeout_s: float, advice: str
) -> dict[str, ReceivedEvent]:
    """The terminal event of each job, by id.

    Args:
        queue: where they come.
        job_ids: of the jobs.
        timeout_s: for all of them.
        advice: what to do when some did not come.

    Raises:
        BrokerUnavailableError: the broker was lost.
        NoOutcomeError: they did not all come in time.
    """
    outcomes: dict[str, ReceivedEvent] = {}
    waiting = set(job_ids)
    try:
        async with asyncio.timeout(timeout_s), aclosing(_events(queue)) as events:
            async for event in events:
                job_id = str(event["subject"])
                if job_id in waiting and event["type"] in _TERMINAL_TYPES:
                    outcomes[job_id] = event
                    waiting.discard(job_id)
                if not waiting:
                    break
    except TimeoutError:
        raise NoOutcomeError(
            f"no terminal event for job {', '.join(sorted(waiting))} within {timeout_s:g} s:"
            f" {advice}"
        ) from None
    return outcomes


async def _events(queue: AbstractQueue) -> AsyncGenerator[ReceivedEvent, None]:
    """Our events from a queue, others are passed over; never ends by itself.

    Raises:
        BrokerUnavailableError: the broker was lost.
    """
    async with queue.iterator() as arrivals:
        async for incoming in arrivals:
            await incoming.ack()
            if incoming.type in _TYPES:
                yield structured(incoming)
    raise BrokerUnavailableError(_LOST)


def _no_exchange(name: str) -> str:
    return f"the broker has no exchange {name}: run `utterd topology apply`, or start a daemon"


def structured(incoming: AbstractIncomingMessage) -> ReceivedEvent:
    """A binary-mode event from AMQP in structured form."""
    attributes: ReceivedEvent = {
        name.removeprefix(HEADER_PREFIX): str(value)
        for name, value in incoming.headers.items()
        if name.startswith(HEADER_PREFIX)
    }
    return {**attributes, "datacontenttype": CONTENT_TYPE, "data": json.loads(incoming.body)}
