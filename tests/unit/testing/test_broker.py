import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from utterd.broker.event import Event
from utterd.broker.message import FIRST_ATTEMPT, History, Message
from utterd.broker.topology import topology
from utterd.config import BrokerSettings, Lane
from utterd.errors import UnknownVoiceError
from utterd.testing.broker import (
    DeadJob,
    InMemoryBroker,
    PostponedJob,
    Settlement,
    with_own_names,
)
from utterd_schemas.events import EventType

MESSAGE = Message(body=b"1")


def make_event() -> Event:
    return Event(
        id=uuid4(),
        type=EventType.COMPLETED,
        source="/test",
        subject="job-1",
        time=datetime.now(UTC),
        data=b"{}",
    )


@pytest.mark.parametrize(
    ("settle", "settlement"),
    [
        ("ack", Settlement.ACKED),
        ("reject", Settlement.REJECTED),
        ("release", Settlement.RELEASED),
    ],
)
async def test_a_delivery_records_its_settlement(settle, settlement):
    """Whoever waits for the settlement learns which one it was."""
    delivery = InMemoryBroker().deliver(MESSAGE, Lane.BATCH)
    assert delivery.settlement is None
    waiting = asyncio.ensure_future(delivery.settled())
    await getattr(delivery, settle)()
    assert await waiting is settlement
    assert delivery.settlement is settlement


@pytest.mark.parametrize("first", ["ack", "reject", "release"])
@pytest.mark.parametrize("second", ["ack", "reject", "release"])
async def test_a_second_settlement_is_an_error(first, second):
    """A bug that RabbitMQ punishes later is seen at once, and changes nothing."""
    broker = InMemoryBroker()
    delivery = broker.deliver(MESSAGE)
    await getattr(delivery, first)()
    before = delivery.settlement, list(broker.dead), list(broker.released)
    with pytest.raises(RuntimeError, match="already"):
        await getattr(delivery, second)()
    assert (delivery.settlement, broker.dead, broker.released) == before


async def test_the_dead_tell_their_reason():
    """Buried jobs have one; rejected jobs have none."""
    broker = InMemoryBroker()
    error = UnknownVoiceError("choose another voice")
    await broker.bury(MESSAGE, error)
    await broker.deliver(MESSAGE).reject()
    assert broker.dead == [DeadJob(MESSAGE, error), DeadJob(MESSAGE, None)]


async def test_postponed_jobs_keep_what_they_come_back_with():
    """Message, lane, history and delay are there to look at."""
    broker = InMemoryBroker()
    history = History(attempt=2, worker_deaths=1)
    await broker.postpone(MESSAGE, Lane.BATCH, history, delay_s=10)
    assert broker.postponed == [PostponedJob(MESSAGE, Lane.BATCH, history, delay_s=10)]


async def test_without_confirms_nobody_gets_on():
    """Held confirms keep all three calls waiting until they are let go."""
    broker = InMemoryBroker()
    broker.hold_confirms()
    sending = asyncio.ensure_future(broker.send(make_event()))
    burying = asyncio.ensure_future(broker.bury(MESSAGE, UnknownVoiceError("choose another")))
    postponing = asyncio.ensure_future(
        broker.postpone(MESSAGE, Lane.BATCH, FIRST_ATTEMPT, delay_s=10)
    )
    await broker.unconfirmed(3)
    assert not any(call.done() for call in (sending, burying, postponing))
    assert broker.events == broker.dead == broker.postponed == []
    broker.confirm()
    await asyncio.gather(sending, burying, postponing)
    assert len(broker.events) == len(broker.dead) == len(broker.postponed) == 1
    await broker.send(make_event())


async def test_events_can_be_awaited():
    """A test waits for an event instead of sleeping."""
    broker = InMemoryBroker()
    waiting = asyncio.ensure_future(broker.wait_for_events(2))
    events = [make_event(), make_event()]
    for event in events:
        await broker.send(event)
    assert await waiting == events


def test_own_names_share_nothing_with_the_defaults():
    """Every exchange and queue gets the prefix, and the broker stays the same."""
    settings = BrokerSettings()
    own = with_own_names(settings, "mine")
    assert own.url == settings.url
    plan = topology(own)
    assert all(one.name.startswith("mine.") for one in (*plan.exchanges, *plan.queues))
