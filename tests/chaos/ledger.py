"""A publisher and subscriber that outlive every fault, and what they can swear to."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from hashlib import sha256
from io import BytesIO

import soundfile
from aio_pika import DeliveryMode, ExchangeType, Message
from aio_pika.abc import AbstractConnection

from support.management import Management
from support.place import PATIENCE_S, Place
from utterd.app import open_store
from utterd.backoff import FullJitter
from utterd.broker import declare
from utterd.broker.connection import BROKER_ERRORS, connect, keep_connecting, losses_raised
from utterd.broker.topology import retry_tier, routing_key, topology
from utterd.client import ReceivedEvent, structured
from utterd.config import Lane
from utterd_schemas.audio import AudioFormat
from utterd_schemas.events import EventType

_DELAYS = FullJitter(base_s=0.05, cap_s=0.3)
_PUBLISH_TIMEOUT_S = 5.0
_LASTING_FACTS = ("key", "sha256", "url", "bytes", "format")
"""What two copies of one completed event must agree on; timings may differ."""


class Ledger:
    """Keeps the jobs that were published and the events that came.

    Attributes:
        place: whose jobs.
        jobs: the job messages, by id.
        events: all events, repeats too, by job, in order.
    """

    def __init__(self, place: Place, management: Management) -> None:
        self.place = place
        self.jobs: dict[str, dict[str, object]] = {}
        self.events: defaultdict[str, list[ReceivedEvent]] = defaultdict(list)
        self._management = management
        self._name = f"{place.broker.exchanges.events}.witness"
        self._news = asyncio.Condition()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Ledger"]:
        """Subscribe for the length of the block, across losses of the broker."""
        await self._set_up()
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(self._listen(), name="ledger")
            yield self
            listening.cancel()

    async def publish(
        self,
        job: dict[str, object],
        lane: Lane = Lane.BATCH,
        expiration_s: float | None = None,
    ) -> None:
        """Publish a job until the broker has confirmed it, perhaps more than once."""
        job_id = str(job["job_id"])
        self.jobs[job_id] = job
        message = Message(
            json.dumps(job).encode(),
            message_id=job_id,
            delivery_mode=DeliveryMode.PERSISTENT,
            expiration=expiration_s,
        )
        while True:
            connection = await keep_connecting(lambda: self.place.broker, "ledger", _DELAYS)
            try:
                with losses_raised():
                    async with connection, connection.channel(on_return_raises=True) as channel:
                        exchange = await channel.get_exchange(
                            self.place.broker.exchanges.jobs, ensure=False
                        )
                        await exchange.publish(
                            message, routing_key(lane), timeout=_PUBLISH_TIMEOUT_S
                        )
            except BROKER_ERRORS:
                await _DELAYS.wait(3)
            else:
                return

    async def event(self, job_id: str, *kinds: EventType) -> ReceivedEvent:
        """Wait for a job's first event of one of these types."""
        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(lambda: any(self._of(job_id, kinds)))
        return next(self._of(job_id, kinds))

    async def terminal(self, job_id: str) -> ReceivedEvent:
        return await self.event(job_id, *_TERMINAL)

    async def completed(self, job_id: str) -> ReceivedEvent:
        event = await self.terminal(job_id)
        assert event["type"] == EventType.COMPLETED, event
        return event

    def unfinished(self) -> list[str]:
        """Jobs without a terminal event."""
        return [job_id for job_id in self.jobs if not any(self._of(job_id, _TERMINAL))]

    async def all_finished(self) -> None:
        """Wait, for as long as any events come, until every job has ended and no copy waits."""
        async with self._news:
            while unfinished := self.unfinished():
                try:
                    await asyncio.wait_for(self._news.wait(), PATIENCE_S)
                except TimeoutError:
                    raise AssertionError(f"events stopped before the end of {unfinished}") from None
        await self.until_ready(0)

    async def until_ready(self, count: int) -> None:
        """Wait until so many jobs are in no daemon's hand, copies that wait for an attempt too."""
        async with asyncio.timeout(PATIENCE_S):
            while sum((await self.waiting()).values()) != count:
                pass

    async def until_lapsed(self, count: int) -> None:
        """Wait until the broker has given up so many jobs of which no daemon has told."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.waiting()).get(self.place.broker.queues.lapsed, 0) != count:
                pass

    async def check(self, failing: Iterable[str] = ()) -> None:
        """Assert that each job has had one effect, now that no daemon runs.

        Args:
            failing: the jobs that must fail; the others must be completed.
        """
        failing = set(failing)
        for job_id in self.jobs:
            expected = EventType.FAILED if job_id in failing else EventType.COMPLETED
            endings = list(self._of(job_id, _TERMINAL))
            assert {event["type"] for event in endings} == {expected}, endings
            assert len({event["id"] for event in endings}) == 1, endings
            if expected is EventType.COMPLETED:
                stories = {
                    tuple(event["data"][fact] for fact in _LASTING_FACTS) for event in endings
                }
                assert len(stories) == 1, endings
        await self._check_objects()
        assert await self.waiting() == {}
        assert {job_id for job_id, _ in await self.dead()} == failing

    async def dead(self) -> list[tuple[str, str]]:
        """Job and reason of each message among the dead, which stay there."""
        found = []
        async with (
            await connect(self.place.broker, "ledger") as connection,
            # All of them are given back when the channel closes.
            connection.channel() as channel,
        ):
            queue = await channel.get_queue(self.place.broker.queues.dead, ensure=False)
            while (incoming := await queue.get(fail=False)) is not None:
                headers = incoming.headers
                reason = headers.get("x-utterd-error-code") or headers["x-first-death-reason"]
                found.append((json.loads(incoming.body)["job_id"], str(reason)))
        return found

    async def _check_objects(self) -> None:
        told = {
            event["data"]["object_name"]: event["data"]
            for job_id in self.jobs
            for event in self._of(job_id, (EventType.COMPLETED,))
        }
        async with open_store(self.place.store) as objects:
            for name, data in told.items():
                audio = await objects.get(name)
                assert sha256(audio).hexdigest() == data["sha256"], data
                assert len(audio) == data["bytes"], data
                if data["format"] in _DECODABLE:
                    pcm, rate_hz = soundfile.read(BytesIO(audio))
                    assert abs(len(pcm) / rate_hz - data["duration_s"]) < 0.1, data

    async def waiting(self) -> dict[str, int]:
        """Messages in the lanes and delays and lapsed ones, by queue; empty queues are left out."""
        broker = self.place.broker
        names = [
            *(broker.queues.of_lane(lane) for lane in Lane),
            broker.queues.lapsed,
            *(f"{broker.queues.retry_prefix}{retry_tier(s)}" for s in broker.limits.retry_delays_s),
        ]
        async with await connect(broker, "ledger") as connection, connection.channel() as channel:
            queues = [await channel.declare_queue(name, passive=True) for name in names]
        counts = {queue.name: queue.declaration_result.message_count for queue in queues}
        return {name: count for name, count in counts.items() if count}

    def _of(self, job_id: str, kinds: Iterable[EventType]) -> Iterable[ReceivedEvent]:
        return (event for event in self.events[job_id] if event["type"] in kinds)

    async def _set_up(self) -> None:
        """Subscribe in a way that holds also when the event exchange is deleted and made again.

        A binding would go with the exchange, and come back too late. A policy applies to it
        from its first moment: whatever has no other way goes to the witness.
        """
        events = self.place.broker.exchanges.events
        async with await connect(self.place.broker, "ledger") as connection:
            await declare.apply(connection, topology(self.place.broker))
            async with connection.channel() as channel:
                exchange = await channel.declare_exchange(
                    self._name, ExchangeType.FANOUT, durable=True
                )
                queue = await channel.declare_queue(
                    self._name, durable=True, arguments={"x-queue-type": "quorum"}
                )
                await queue.bind(exchange)
        await self._management.set_policy(
            self._name,
            pattern=f"^{events}$",
            apply_to="exchanges",
            definition={"alternate-exchange": self._name},
        )

    async def _listen(self) -> None:
        while True:
            connection = await keep_connecting(lambda: self.place.broker, "ledger", _DELAYS)
            try:
                with losses_raised():
                    await self._listen_on(connection)
            except BROKER_ERRORS:
                await _DELAYS.wait(3)

    async def _listen_on(self, connection: AbstractConnection) -> None:
        async with connection, connection.channel() as channel:
            queue = await channel.get_queue(self._name, ensure=False)
            async with queue.iterator() as arrivals:
                async for incoming in arrivals:
                    event = structured(incoming)
                    async with self._news:
                        self.events[str(event["subject"])].append(event)
                        self._news.notify_all()
                    await incoming.ack()


_TERMINAL = tuple(kind for kind in EventType if kind.is_terminal)
_DECODABLE = frozenset(AudioFormat) - {AudioFormat.PCM, AudioFormat.ULAW, AudioFormat.ALAW}
"""Those that soundfile recognizes without being told what they are."""
