"""The other side of the broker: publish jobs, await and watch events."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from aio_pika import DeliveryMode, Message
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError
from pydantic import JsonValue

from utterd.broker.connection import BROKER_ERRORS, connect, losses_raised
from utterd.broker.topology import routing_key
from utterd.config import BrokerSettings, Lane
from utterd.errors import BrokerUnavailableError, ConfigurationError
from utterd_schemas.events import CONTENT_TYPE, HEADER_PREFIX, EventType
from utterd_schemas.job import Job

ReceivedEvent = dict[str, JsonValue]
"""A CloudEvent in structured form: the attributes, and the payload under `data`."""

_TYPES = frozenset(str(kind) for kind in EventType)
_TERMINAL_TYPES = frozenset(str(kind) for kind in EventType if kind.is_terminal)

_MAX_SHORT_STRING_BYTES = 255
_LOST = "the connection to the broker was lost: try again when it is back"


@dataclass(frozen=True, slots=True)
class Client:
    """Talks to daemons through one connection; made by `open_client`."""

    settings: BrokerSettings
    connection: AbstractConnection

    async def publish(self, job: Job, lane: Lane, *, reply_to: str | None = None) -> str:
        """Publish a job; returns its id once the broker has confirmed it.

        Raises:
            ConfigurationError: there is no such lane on the broker.
            BrokerUnavailableError: the broker refused, or did not confirm in time.
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
        try:
            with losses_raised():
                async with self.connection.channel(on_return_raises=True) as channel:
                    # An alternate exchange takes what fits no lane, so no return would tell.
                    await channel.declare_queue(self.settings.queues.of_lane(lane), passive=True)
                    exchange = await channel.get_exchange(self.settings.exchanges.jobs)
                    await exchange.publish(
                        message, routing_key(lane), timeout=self.settings.publish_timeout_s
                    )
        except ChannelNotFoundEntity as error:
            raise ConfigurationError(
                f"the broker has no {lane} lane: run `utterd topology apply`, or start a daemon"
            ) from error
        except DeliveryError as error:
            raise BrokerUnavailableError(
                "the broker refused the job: its queue is full. Try again later"
            ) from error
        except BROKER_ERRORS as error:
            raise BrokerUnavailableError(
                f"the broker did not confirm the job ({type(error).__name__}): try again with the"
                f" same job id, {job_id!r}"
            ) from error
        return job_id

    async def publish_and_wait(self, job: Job, lane: Lane, *, timeout_s: float) -> ReceivedEvent:
        """Publish a job and return its terminal event.

        Raises:
            ConfigurationError: there is no such lane on the broker.
            BrokerUnavailableError: the broker refused or was lost, or no terminal event came
                within `timeout_s`.
        """
        async with self._private_queue() as queue:
            job_id = await self.publish(job, lane, reply_to=queue.name)
            try:
                async with asyncio.timeout(timeout_s), aclosing(_events(queue)) as events:
                    async for event in events:
                        if event["subject"] == job_id and event["type"] in _TERMINAL_TYPES:
                            return event
            except TimeoutError:
                pass
        raise BrokerUnavailableError(
            f"no terminal event for job {job_id} within {timeout_s:g} s: check that a daemon runs"
            " (`utterd run`), or wait for the event with `utterd watch`"
        )

    async def watch(self, pattern: str = "#") -> AsyncIterator[ReceivedEvent]:
        """Events as they come, from now on.

        Args:
            pattern: AMQP topic pattern, such as `synthesis.failed`.

        Raises:
            ConfigurationError: there is no event exchange on the broker.
            BrokerUnavailableError: the broker was lost.
        """
        async with self._private_queue() as queue:
            try:
                await queue.bind(self.settings.exchanges.events, pattern)
            except ChannelNotFoundEntity as error:
                raise ConfigurationError(
                    f"the broker has no exchange {self.settings.exchanges.events}: run"
                    " `utterd topology apply`, or start a daemon"
                ) from error
            async with aclosing(_events(queue)) as events:
                async for event in events:
                    yield event

    @asynccontextmanager
    async def _private_queue(self) -> AsyncIterator[AbstractQueue]:
        try:
            with losses_raised():
                async with self.connection.channel() as channel:
                    # Exclusive: RabbitMQ 4.3 refuses transient queues that are not.
                    yield await channel.declare_queue(exclusive=True)
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


def structured(incoming: AbstractIncomingMessage) -> ReceivedEvent:
    """A binary-mode event from AMQP in structured form."""
    attributes: ReceivedEvent = {
        name.removeprefix(HEADER_PREFIX): str(value)
        for name, value in incoming.headers.items()
        if name.startswith(HEADER_PREFIX)
    }
    return {**attributes, "datacontenttype": CONTENT_TYPE, "data": json.loads(incoming.body)}
