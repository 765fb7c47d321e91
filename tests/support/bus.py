"""The publisher's and subscriber's side of a place, while the broker holds."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueueIterator

from support import secrecy
from support.place import PATIENCE_S, Place
from utterd.app import open_store
from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.topology import routing_key, topology
from utterd.client import ReceivedEvent, structured
from utterd.config import Lane
from utterd_schemas.events import EventType


@dataclass
class Bus:
    """The publisher's and subscriber's side of a place."""

    place: Place
    channel: AbstractChannel
    incoming_events: AbstractQueueIterator
    incoming_dead: AbstractQueueIterator
    events: list[ReceivedEvent] = field(default_factory=list)
    dead: list[AbstractIncomingMessage] = field(default_factory=list)

    async def publish(
        self, body: bytes | Mapping[str, object], *, lane: Lane = Lane.INTERACTIVE, **properties
    ) -> None:
        """Send any bytes, or a job, with any properties."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        secrecy.note(raw)
        exchange = await self.channel.get_exchange(self.place.broker.exchanges.jobs)
        await exchange.publish(aio_pika.Message(raw, **properties), routing_key(lane))

    async def run(self, text: str, **fields: object) -> dict:
        """Publish one job; returns its completed event's data."""
        job_id = str(uuid4())
        await self.publish({"job_id": job_id, "text": text} | fields)
        return await self.completed(job_id)

    async def completed(self, job_id: str) -> dict:
        event = await self.terminal(job_id)
        assert event["type"] == EventType.COMPLETED, event
        return event["data"]

    async def terminal(self, job_id: str) -> ReceivedEvent:
        """Wait for a job's terminal event."""
        return await self.event(job_id, *(kind for kind in EventType if kind.is_terminal))

    async def event(self, job_id: str, *kinds: EventType) -> ReceivedEvent:
        """Wait for the first event of a job that is of one of these types."""
        try:
            return await asyncio.wait_for(self._event(job_id, kinds), PATIENCE_S)
        except TimeoutError:
            raise AssertionError(
                f"no {' or '.join(kinds)} for {job_id} in {PATIENCE_S:g} s; the last that the"
                f" daemons logged: {self.place.last_words()}"
            ) from None

    async def _event(self, job_id: str, kinds: Collection[EventType]) -> ReceivedEvent:
        while True:
            for event in self.events:
                if event["subject"] == job_id and event["type"] in kinds:
                    return event
            incoming = await anext(self.incoming_events)
            await incoming.ack()
            self.events.append(structured(incoming))

    async def buried(self, body: bytes) -> AbstractIncomingMessage:
        """Wait for the copy of a message among the dead."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for message in self.dead:
                    if message.body == body:
                        return message
                incoming = await anext(self.incoming_dead)
                await incoming.ack()
                self.dead.append(incoming)

    async def waiting(self) -> int:
        """Jobs in both lanes that no daemon has taken, or that were given back."""
        queues = self.place.broker.queues
        counts = [
            (await self.channel.declare_queue(queues.of_lane(lane), passive=True)) for lane in Lane
        ]
        return sum(queue.declaration_result.message_count for queue in counts)

    async def until_lapsed(self, count: int) -> None:
        """Wait until the broker has given up so many jobs of which no daemon has told."""
        name = self.place.broker.queues.lapsed
        async with asyncio.timeout(PATIENCE_S):
            while (
                await self.channel.declare_queue(name, passive=True)
            ).declaration_result.message_count != count:
                pass

    async def audio(self, data: Mapping[str, str]) -> bytes:
        """The object that a completed event tells of."""
        async with open_store(self.place.store) as objects:
            return await objects.get(data["object_name"])


@contextlib.asynccontextmanager
async def open_bus(place: Place) -> AsyncIterator[Bus]:
    async with await connect(place.broker, "e2e") as connection:
        await declare.apply(connection, topology(place.broker))
        async with connection.channel(on_return_raises=True) as channel:
            events = await channel.declare_queue(exclusive=True)
            await events.bind(place.broker.exchanges.events, "#")
            dead = await channel.get_queue(place.broker.queues.dead)
            async with events.iterator() as incoming_events, dead.iterator() as incoming_dead:
                yield Bus(place, channel, incoming_events, incoming_dead)
