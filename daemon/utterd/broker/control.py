"""Orders to all daemons, over the control exchange."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import structlog
from aio_pika import Message
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

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


async def listen(channel: AbstractChannel, settings: BrokerSettings, cancel: CancelJob) -> None:
    """Obey orders for as long as the channel is open."""
    queue = await channel.declare_queue(exclusive=True)
    await queue.bind(settings.exchanges.control)

    async def obey(incoming: AbstractIncomingMessage) -> None:
        job_id = _cancelled_job(incoming.body)
        if job_id is None:
            log.warning("order_not_understood", body_bytes=len(incoming.body))
        else:
            cancel(job_id, incoming.timestamp or datetime.now(UTC))

    await queue.consume(obey, no_ack=True)


def _cancelled_job(body: bytes) -> str | None:
    try:
        order = json.loads(body)
    except (ValueError, RecursionError):
        return None
    job_id = order.get("cancel") if isinstance(order, dict) else None
    return job_id if isinstance(job_id, str) else None
