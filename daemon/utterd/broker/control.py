"""Orders to all daemons, over the control exchange."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import structlog
from aio_pika import Message
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from utterd.backoff import FullJitter
from utterd.broker.connection import BROKER_ERRORS, losses_raised
from utterd.config import BrokerSettings

log = structlog.get_logger(__name__)

CancelJob = Callable[[str, datetime], None]
"""Calls off the job of this id, if it was published before this instant."""


def cancel_order(job_id: str) -> Message:
    """The message that calls a job off."""
    return Message(
        json.dumps({"cancel": job_id}).encode(),
        content_type="application/json",
        timestamp=datetime.now(UTC),
    )


async def listen(
    channel: AbstractChannel, settings: BrokerSettings, cancel: CancelJob
) -> AbstractQueue:
    """Obey orders for as long as the channel is open; returns the queue that they come by."""
    queue = await channel.declare_queue(exclusive=True)
    await queue.bind(settings.exchanges.control)

    async def obey(incoming: AbstractIncomingMessage) -> None:
        job_id = _cancelled_job(incoming.body)
        if job_id is None:
            log.warning("order_not_understood", body_bytes=len(incoming.body))
        else:
            cancel(job_id, incoming.timestamp or datetime.now(UTC))

    await queue.consume(obey, no_ack=True)
    return queue


async def keep_bound(queue: AbstractQueue, settings: BrokerSettings, waits: FullJitter) -> None:
    """Bind the queue of the orders again and again, until its channel is closed.

    An exchange that is deleted takes its bindings along, and the broker tells nobody. Where it was
    made again meanwhile, this makes the binding; where it is still missing, the broker closes the
    channel, which whoever watches that will see.
    """
    try:
        with losses_raised():
            while True:
                await waits.wait(1)
                await queue.bind(settings.exchanges.control)
    except BROKER_ERRORS as error:
        log.warning("orders_lost", reason=str(error) or type(error).__name__)


def _cancelled_job(body: bytes) -> str | None:
    try:
        order = json.loads(body)
    except (ValueError, RecursionError):
        return None
    job_id = order.get("cancel") if isinstance(order, dict) else None
    return job_id if isinstance(job_id, str) else None
