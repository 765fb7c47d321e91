"""Puts one job into a lane, confirmed by the broker."""

from aio_pika import Message as AmqpMessage
from aio_pika.abc import AbstractConnection
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError
from aiormq.exceptions import ChannelAccessRefused, PublishError

from utterd.broker.connection import BROKER_ERRORS, losses_raised
from utterd.broker.topology import routing_key
from utterd.config import BrokerSettings, Lane
from utterd.errors import BrokerUnavailableError, ConfigurationError, NotNowError


class LaneFullError(NotNowError):
    """The lane has no room."""


async def submit(
    connection: AbstractConnection, settings: BrokerSettings, message: AmqpMessage, lane: Lane
) -> None:
    """Publish a job's message; returns when the broker has confirmed it.

    Raises:
        ConfigurationError: there is no such lane on the broker, or its user may not publish.
        LaneFullError: the lane holds as many jobs as it may.
        BrokerUnavailableError: the broker did not confirm in time; it may have the job.
    """
    queue_name = settings.queues.of_lane(lane)
    try:
        with losses_raised():
            async with connection.channel(on_return_raises=True) as channel:
                # An alternate exchange takes what fits no lane, so no return would tell.
                await channel.declare_queue(queue_name, passive=True)
                exchange = await channel.get_exchange(settings.exchanges.jobs)
                await exchange.publish(
                    message, routing_key(lane), timeout=settings.publish_timeout_s
                )
    except (ChannelNotFoundEntity, PublishError) as error:
        raise ConfigurationError(
            f"the broker has no {lane} lane: run `utterd topology apply`, or start a daemon"
        ) from error
    except DeliveryError as error:
        raise LaneFullError(
            f"the {lane} lane is busy: {await _depth(connection, queue_name)}, and it takes no"
            " more. Try again when the daemons have caught up"
        ) from error
    except ChannelAccessRefused as error:
        raise ConfigurationError(
            f"the broker's user may not publish to {settings.exchanges.jobs!r}: grant it the right"
            " to write there (docs/security.md)"
        ) from error
    except BROKER_ERRORS as error:
        which = f", {message.message_id!r}" if message.message_id else ""
        raise BrokerUnavailableError(
            f"the broker did not confirm the job ({type(error).__name__}): try again with the same"
            f" job id{which}"
        ) from error


async def _depth(connection: AbstractConnection, queue_name: str) -> str:
    """How many jobs wait in a queue, as words."""
    try:
        with losses_raised():
            async with connection.channel() as channel:
                queue = await channel.declare_queue(queue_name, passive=True)
    except BROKER_ERRORS:
        return "it is full"
    return f"{queue.declaration_result.message_count} jobs wait in it"
