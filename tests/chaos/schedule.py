"""A random schedule of jobs and of faults that strike while they are worked on."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from chaos.brittle import FAIL, HANG, PERISH, STUMBLE
from chaos.daemon import ForkedDaemon
from chaos.ledger import Ledger
from chaos.s3_proxy import Fault, S3Proxy
from support.management import Management
from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.topology import topology
from utterd.config import Lane
from utterd.sandbox import Sandbox

_FORMATS = ("wav", "wav", "flac", "mp3", "opus", "vorbis")
_STORE_FAULT_S = (0.3, 1.2)
_EXCHANGE_MISSING_S = (0.2, 0.8)


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs of a schedule.

    Attributes:
        messages: what is published, in order, each with its lane.
        failing: the ids of those that must fail.
    """

    messages: list[tuple[dict[str, object], Lane]]
    failing: frozenset[str]

    @classmethod
    def draw(cls, count: int, source: random.Random) -> "Jobs":
        """Jobs of all lengths and formats; some are equal, and one in eight means trouble."""
        messages: list[tuple[dict[str, object], Lane]] = []
        failing: set[str] = set()
        texts: list[str] = []
        for number in range(count):
            job_id = f"job-{number}"
            match source.randrange(100):
                case 0:
                    text = f"{PERISH} with job {number}."
                    failing.add(job_id)
                case 1 | 2 | 3:
                    text = "?!"
                    failing.add(job_id)
                case 4:
                    text = f"{HANG} on job {number}."
                case 5 | 6 | 7 | 8:
                    text = f"{STUMBLE} over job {number}."
                case 9 | 10 | 11 | 12:
                    text = f"{FAIL} at job {number}."
                case roll if roll < 25 and texts:
                    text = source.choice(texts)
                case _:
                    sentence = f"This is what job {number} has to say. "
                    text = sentence * source.choice((1, 1, 1, 2, 5, 20))
                    texts.append(text)
            job: dict[str, object] = {
                "job_id": job_id,
                "text": text,
                "format": source.choice(_FORMATS),
            }
            if source.random() < 0.2:
                job["marks"] = ["sentence"]
            messages.append((job, source.choice(tuple(Lane))))
        return cls(messages, frozenset(failing))


Strike = Callable[["Stage"], Awaitable[None]]


@dataclass(slots=True)
class Stage:
    """Everything that faults may strike.

    Attributes:
        start: starts one more daemon.
        daemons: those that run.
    """

    sandbox: Sandbox
    management: Management
    s3: S3Proxy
    ledger: Ledger
    start: Callable[[], ForkedDaemon]
    source: random.Random
    daemons: list[ForkedDaemon] = field(default_factory=list)

    async def break_store(self, fault: Fault) -> None:
        self.s3.break_down(fault)
        await asyncio.sleep(self.source.uniform(*_STORE_FAULT_S))
        self.s3.heal()

    async def kill_broker(self) -> None:
        self.sandbox.rabbitmq.kill()
        await asyncio.to_thread(self.sandbox.rabbitmq.start)

    async def kill_daemon(self) -> None:
        """One of several, at any step; its place is taken."""
        self._next_daemon().kill()
        self.daemons.append(self.start())

    async def stop_daemon(self) -> None:
        leaving = self._next_daemon()
        self.daemons.append(self.start())
        await leaving.stop()

    async def close_connections(self) -> None:
        for name in ("utterd consumer", "utterd publisher"):
            await self.management.close_connections(name)

    async def remove_event_exchange(self) -> None:
        broker = self.ledger.place.broker
        async with await connect(broker, "operator") as operator:
            async with operator.channel() as channel:
                await channel.exchange_delete(broker.exchanges.events)
            await asyncio.sleep(self.source.uniform(*_EXCHANGE_MISSING_S))
            await declare.apply(operator, topology(broker))

    def _next_daemon(self) -> ForkedDaemon:
        return self.daemons.pop(self.source.randrange(len(self.daemons)))


def deck() -> list[tuple[str, Strike]]:
    """Each fault once, with its name."""
    strikes: list[tuple[str, Strike]] = [
        ("broker killed", Stage.kill_broker),
        ("daemon killed", Stage.kill_daemon),
        ("daemon killed", Stage.kill_daemon),
        ("daemon stopped", Stage.stop_daemon),
        ("connections closed", Stage.close_connections),
        ("event exchange removed", Stage.remove_event_exchange),
    ]
    return strikes + [(f"store: {fault.name.lower()}", _breaking(fault)) for fault in Fault]


def _breaking(fault: Fault) -> Strike:
    return lambda stage: stage.break_store(fault)


async def play(stage: Stage, jobs: Jobs, decks: int) -> None:
    """Publish the jobs in equal parts, and let a fault strike while each part is worked on.

    Args:
        stage: with daemons that run.
        jobs: to publish.
        decks: how often each fault strikes, in an order drawn anew each time.
    """
    faults: list[tuple[str, Strike]] = []
    for _ in range(decks):
        faults += stage.source.sample(deck(), len(deck()))
    for number, (name, strike) in enumerate(faults):
        part = jobs.messages[number :: len(faults)]
        print(f"{len(part)} jobs, {name}")  # noqa: T201 - shown when the test fails
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_publish(stage.ledger, part), name="publish")
            tasks.create_task(strike(stage), name=name)


async def _publish(ledger: Ledger, part: list[tuple[dict[str, object], Lane]]) -> None:
    for job, lane in part:
        await ledger.publish(job, lane)
