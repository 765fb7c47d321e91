"""How fast a job is answered whose audio was made before."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median, quantiles

from aio_pika.abc import AbstractConnection, AbstractIncomingMessage
from broker import BARE_QUEUE, bare_consumer, declare_bare_queue, event_queue, job_message
from report import Row, Section

from utterd.broker.connection import connect
from utterd.broker.topology import routing_key
from utterd.config import BrokerSettings, Lane
from utterd_schemas.events import EventType
from utterd_schemas.job import Job

TARGET_P99_S = 0.030
_ROUNDS = 5
_JOBS = 60
_TIMEOUT_S = 30.0
_TEXT = "This sentence was spoken before, and now it is only looked up."

METHOD = f"""\
One client publishes a job (and awaits the broker's confirm), then waits for its `completed` event,
again and again: a job of its own each time, always of the same text, so that the audio stands in
the bucket. `utterd run` with its defaults is a process of its own; RabbitMQ and the S3 server are
the sandbox's, on the same cores. The daemon asks the bucket each time, since an object may have
been removed. The baseline is the same client and a bare consumer that answers with an event of the
same size. {_ROUNDS} rounds in turns, {_JOBS} jobs each."""

RoundTrip = Callable[[str], Awaitable[tuple[float, int]]]


async def measure_cached(connection: AbstractConnection, broker: BrokerSettings) -> Section:
    """Time round trips through a running daemon and through a bare consumer.

    Args:
        connection: to publish with and to hear events on.
        broker: of the sandbox that a daemon works in.
    """
    await declare_bare_queue(connection, broker)
    daemon_s: list[float] = []
    bare_s: list[float] = []
    async with _client(broker) as (via_daemon, via_bare):
        # The first makes the audio, and tells how large an event is.
        await via_daemon("cached-first")
        _, event_bytes = await via_daemon("cached-second")
        async with bare_consumer(broker, prefetch=1, payload=b"x" * event_bytes):
            await via_bare("bare-first")
            for number in range(_ROUNDS):
                daemon_s += [(await via_daemon(f"cached-{number}-{i}"))[0] for i in range(_JOBS)]
                bare_s += [(await via_bare(f"bare-{number}-{i}"))[0] for i in range(_JOBS)]
    daemon_p99_s, bare_p99_s = _p99(daemon_s), _p99(bare_s)
    return Section(
        title="A cached job",
        method=METHOD,
        rows=(
            _row("publish to event, median", median(daemon_s), median(bare_s)),
            _row("publish to event, 99th percentile", daemon_p99_s, bare_p99_s, TARGET_P99_S),
        ),
    )


def _row(name: str, ours_s: float, bare_s: float, target_s: float | None = None) -> Row:
    return Row(
        name=name,
        figure=_ms(ours_s),
        baseline=_ms(bare_s),
        ratio=ours_s / bare_s,
        target="" if target_s is None else f"< {target_s * 1000:.0f} ms",
        is_met=None if target_s is None else ours_s < target_s,
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _p99(samples: list[float]) -> float:
    return quantiles(samples, n=100)[98]


@asynccontextmanager
async def _client(broker: BrokerSettings) -> AsyncIterator[tuple[RoundTrip, RoundTrip]]:
    """A client's two ways to send something and wait for the event that it leads to."""
    waiting: dict[str, asyncio.Future[int]] = {}

    async def on_event(incoming: AbstractIncomingMessage) -> None:
        await incoming.ack()
        if incoming.type == EventType.COMPLETED and incoming.correlation_id in waiting:
            waiting.pop(incoming.correlation_id).set_result(len(incoming.body))

    async with (
        await connect(broker, "bench client") as connection,
        event_queue(connection, broker) as queue,
        connection.channel(on_return_raises=True) as channel,
    ):
        await queue.consume(on_event)
        jobs = await channel.get_exchange(broker.exchanges.jobs, ensure=False)

        async def send(name: str, publish: Awaitable[object]) -> tuple[float, int]:
            waiting[name] = asyncio.get_running_loop().create_future()
            answer = waiting[name]
            started_s = time.perf_counter()
            async with asyncio.timeout(_TIMEOUT_S):
                await publish
                event_bytes = await answer
            return time.perf_counter() - started_s, event_bytes

        async def via_daemon(name: str) -> tuple[float, int]:
            message = job_message(Job(text=_TEXT, job_id=name))
            message.correlation_id = name
            return await send(name, jobs.publish(message, routing_key(Lane.INTERACTIVE)))

        async def via_bare(name: str) -> tuple[float, int]:
            message = job_message(Job(text=_TEXT, job_id=name))
            message.correlation_id = name
            return await send(name, channel.default_exchange.publish(message, BARE_QUEUE))

        yield via_daemon, via_bare
