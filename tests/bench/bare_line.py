"""The least that turns a message into audio and events: a floor for the overhead of a job.

It does what can be seen from outside, and nothing of what makes it safe: no validation, no text
front end, no gates, no limits, no retries, no log, no metrics.
"""

import asyncio
import hashlib
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import soundfile
from aio_pika.abc import AbstractIncomingMessage
from broker import announce_bare, bare_ends

from utterd.config import BrokerSettings
from utterd.testing.engine import SAMPLE_RATE_HZ, tone
from utterd_schemas.events import EventType


@asynccontextmanager
async def bare_line(
    settings: BrokerSettings,
    directory: Path,
    *,
    prefetch: int,
    event_bytes: int,
    on_start: Callable[[], None],
    on_done: Callable[[], None],
) -> AsyncIterator[None]:
    """Answer each message of `BARE_QUEUE` with a stored WAV file, two confirmed events and an ack.

    As in the daemon, the first event is confirmed beside the work.

    Args:
        settings: which broker.
        directory: where files and their metadata go.
        prefetch: unsettled messages, worked on side by side.
        event_bytes: about the size of an event.
        on_start: told of each delivery.
        on_done: told of each settlement.
    """
    pcm, padding = tone(2.0), {"padding": "x" * event_bytes}
    async with bare_ends(settings, prefetch=prefetch) as (queue, exchange):

        async def answer(incoming: AbstractIncomingMessage) -> None:
            on_start()
            key = hashlib.sha256(incoming.body).hexdigest()
            (directory / key).exists()
            async with asyncio.TaskGroup() as beside:
                started = json.dumps(padding).encode()
                beside.create_task(announce_bare(exchange, incoming, EventType.STARTED, started))
                facts = _store(directory / key, pcm)
            completed = json.dumps(facts | padding).encode()
            await announce_bare(exchange, incoming, EventType.COMPLETED, completed)
            await incoming.ack()
            on_done()

        await queue.consume(answer)
        yield


def _store(path: Path, pcm: np.ndarray) -> dict[str, object]:
    """Encode and write a file and its metadata; the file appears when it is whole."""
    buffer = io.BytesIO()
    soundfile.write(buffer, pcm, SAMPLE_RATE_HZ, format="WAV", subtype="PCM_16")
    data = buffer.getvalue()
    facts = {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
    partial = path.with_suffix(".part")
    partial.write_bytes(data)
    path.with_suffix(".json").write_text(json.dumps(facts), encoding="utf-8")
    partial.rename(path)
    return facts
