"""Whatever a job needs breaks, and comes back."""

import asyncio
import signal
from pathlib import Path
from uuid import uuid4

import pytest

from chaos.brittle import FAIL, HANG, PERISH, STUMBLE
from chaos.daemon import POLL_S
from chaos.ledger import Ledger
from chaos.s3_proxy import Fault
from support.management import Management
from support.place import PATIENCE_S
from utterd.broker import declare
from utterd.broker.connection import connect
from utterd.broker.topology import topology
from utterd.config import Lane
from utterd.ops.memory import resident_bytes
from utterd_schemas.events import EventType

pytestmark = [pytest.mark.sandbox, pytest.mark.chaos]

REASONS = {
    Fault.SLOW_DOWN: "overloaded",
    Fault.ACCESS_DENIED: "credentials",
    Fault.NO_SUCH_BUCKET: "the bucket does not exist",
    Fault.CLOCK_SKEWED: "clock skew",
    Fault.RESET: "connection",
    Fault.BLACK_HOLE: "did not answer in time",
}
"""What a person reads in the log."""


async def publish(ledger: Ledger, *texts: str) -> list[str]:
    """Publish a job a text; returns the ids."""
    job_ids = [str(uuid4()) for _ in texts]
    for job_id, text in zip(job_ids, texts, strict=True):
        await ledger.publish({"job_id": job_id, "text": text})
    return job_ids


def some(count: int) -> list[str]:
    return [f"Job {number} of a few." for number in range(count)]


@pytest.mark.parametrize("fault", REASONS, ids=lambda fault: fault.name.lower())
async def test_a_broken_store_pauses_the_daemon(fault: Fault, start, ledger: Ledger, s3):
    """Jobs go back uncounted, the log says why, and work goes on by itself (S-03 to S-10)."""
    daemon = start(store=s3)
    await ledger.completed((await publish(ledger, "All is well."))[0])
    s3.break_down(fault)
    job_ids = await publish(ledger, *some(4))
    await daemon.until_logged("still_paused")
    await ledger.until_ready(len(job_ids))
    assert any(REASONS[fault] in str(line["reason"]) for line in daemon.logged("still_paused"))
    s3.heal()
    for job_id in job_ids:
        assert (await ledger.completed(job_id))["data"]["attempts"] == 1
    await daemon.stop()
    await ledger.check()


async def test_a_bucket_that_is_missing_at_the_start_is_waited_for(start, ledger: Ledger, s3):
    """The daemon is up and not ready, says what is missing, and works when it is there (S-07)."""
    s3.break_down(Fault.NO_SUCH_BUCKET)
    (job_id,) = await publish(ledger, "Patience.")
    daemon = start(store=s3)
    await daemon.until_logged("still_paused")
    assert REASONS[Fault.NO_SUCH_BUCKET] in str(daemon.logged("still_paused")[0]["reason"])
    assert not daemon.logged("consuming")
    s3.heal()
    assert (await ledger.completed(job_id))["data"]["attempts"] == 1
    await daemon.stop()
    await ledger.check()


async def test_a_short_overload_costs_waiting_only(start, ledger: Ledger, s3):
    """The first puts of a job are refused, and it is completed at its first attempt (S-01)."""
    daemon = start(store=s3)
    await daemon.until_logged("consuming")
    s3.break_down(Fault.SLOW_DOWN, "PUT", times=3)
    (job_id,) = await publish(ledger, "In spite of all.")
    assert (await ledger.completed(job_id))["data"]["attempts"] == 1
    assert len(s3.requests("PUT", Fault.SLOW_DOWN)) == 3
    await daemon.stop()
    await ledger.check()


async def test_a_slow_store_is_no_fault(start, ledger: Ledger, s3):
    """Answers that take their time pause nothing."""
    daemon = start(store=s3)
    await daemon.until_logged("consuming")
    s3.break_down(Fault.SLOW)
    for job_id in await publish(ledger, *some(2)):
        await ledger.completed(job_id)
    # The one line is from the start, when the store had not been asked yet.
    assert len(daemon.logged("paused")) == 1
    await daemon.stop()
    await ledger.check()


async def test_finished_audio_outlives_the_daemon(start, ledger: Ledger, s3):
    """What the store could not take is found by the next daemon, and is not spoken again."""
    doomed = start(store=s3)
    await doomed.until_logged("consuming")
    s3.break_down(Fault.SLOW_DOWN, "PUT")
    (job_id,) = await publish(ledger, "Spoken once.")
    await doomed.until_logged("spooled")
    doomed.kill()
    s3.heal()
    daemon = start(store=s3)
    data = (await ledger.completed(job_id))["data"]
    assert daemon.logged("spool_flushed")
    assert data["timings"]["speak_s"] == 0
    assert not data["cached"]
    await daemon.stop()
    await ledger.check()


@pytest.mark.usefixtures("lasting_queues")
async def test_the_broker_is_killed_in_mid_job(start, ledger: Ledger, s3, fragile_sandbox):
    """The audio in the making is not lost, and both connections come back by themselves."""
    daemon = start(store=s3)
    await daemon.until_logged("consuming")
    s3.break_down(Fault.SLOW)
    job_ids = await publish(ledger, *some(3))
    await ledger.event(job_ids[0], EventType.STARTED)
    fragile_sandbox.rabbitmq.kill()
    await asyncio.to_thread(fragile_sandbox.rabbitmq.start)
    s3.heal()
    for job_id in job_ids:
        assert (await ledger.completed(job_id))["data"]["attempts"] == 1
    await daemon.stop()
    await ledger.check()


async def test_connections_are_closed_by_the_broker(start, ledger: Ledger, management: Management):
    """Either connection is replaced, and no job fails."""
    daemon = start()
    await ledger.completed((await publish(ledger, "Before."))[0])
    for name in ("utterd consumer", "utterd publisher"):
        async with asyncio.timeout(PATIENCE_S):
            # The list of connections is some seconds old.
            while not await management.close_connections(name):
                pass
        await ledger.completed((await publish(ledger, f"After {name}."))[0])
    await daemon.stop()
    await ledger.check()


async def test_the_event_exchange_is_missing_for_a_while(start, ledger: Ledger):
    """The daemon takes no jobs meanwhile, and the event in its hand is sent afterwards (M-21)."""
    daemon = start()
    await ledger.completed((await publish(ledger, "Before."))[0])
    events = ledger.place.broker.exchanges.events
    async with await connect(ledger.place.broker, "operator") as operator:
        async with operator.channel() as channel:
            await channel.exchange_delete(events)
        job_ids = await publish(ledger, *some(3))
        await daemon.until_logged("still_paused")
        assert any(events in str(line["reason"]) for line in daemon.logged("still_paused"))
        await declare.apply(operator, topology(ledger.place.broker))
    for job_id in job_ids:
        await ledger.completed(job_id)
    await daemon.stop()
    await ledger.check()


async def test_a_lane_is_deleted(start, ledger: Ledger):
    """Its consumer is told, the lane is declared again, and jobs come in by it."""
    daemon = start()
    await ledger.completed((await publish(ledger, "Before."))[0])
    async with (
        await connect(ledger.place.broker, "operator") as operator,
        operator.channel() as channel,
    ):
        await channel.queue_delete(ledger.place.broker.queues.of_lane(Lane.BATCH))
    await daemon.until_logged("consuming", times=2)
    await ledger.completed((await publish(ledger, "After."))[0])
    await daemon.stop()
    await ledger.check()


async def test_a_worker_is_killed(start, ledger: Ledger):
    """It is replaced, the job has a second attempt, and its neighbours notice nothing (P-05)."""
    daemon = start(UTTERD_ENGINE__WORKERS="2")
    victim, *others = await publish(ledger, f"{STUMBLE} over this.", *some(4))
    assert (await ledger.completed(victim))["data"]["attempts"] == 2
    for job_id in others:
        assert (await ledger.completed(job_id))["data"]["attempts"] == 1
    await daemon.until(lambda: len(daemon.worker_pids) == 3)
    await daemon.stop()
    await ledger.check()


async def test_a_worker_hangs(start, ledger: Ledger):
    """The job's time limit frees the slot, and the next attempt succeeds."""
    daemon = start(UTTERD_SPEECH__JOB_TIMEOUT_S="0.5")
    victim, other = await publish(ledger, f"{HANG} on.", "Behind it.")
    assert (await ledger.completed(victim))["data"]["attempts"] == 2
    await ledger.completed(other)
    assert daemon.logged("worker_killed")
    await daemon.stop()
    await ledger.check()


async def test_a_hung_worker_goes_with_its_daemon(start, ledger: Ledger):
    """Nothing is left of a daemon that was killed, not even what can't notice its end."""
    daemon = start()
    (job_id,) = await publish(ledger, f"{HANG} on.")
    await daemon.until_logged("worker_started")
    (worker,) = daemon.worker_pids
    await daemon.until(lambda: processor_state(worker) == "T")
    daemon.kill()
    async with asyncio.timeout(PATIENCE_S):
        while resident_bytes(worker):  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(POLL_S)
    successor = start()
    await ledger.completed(job_id)
    await successor.stop()
    await ledger.check()


def processor_state(pid: int) -> str:
    """As proc(5) has it: `T` is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_job_that_kills_workers_is_given_up(start, ledger: Ledger):
    """It is among the dead after two of them, with its history; the others are completed."""
    daemon = start(UTTERD_ENGINE__WORKERS="2")
    poison, *others = await publish(ledger, f"{PERISH} all.", *some(4), f"{FAIL} once.")
    event = await ledger.terminal(poison)
    assert event["type"] == EventType.FAILED
    assert event["data"]["attempts"] == 2
    assert event["data"]["error"]["code"] == "worker_died"
    for job_id in others:
        await ledger.completed(job_id)
    await daemon.stop()
    await ledger.check(failing=[poison])
    assert await ledger.dead() == [(poison, "worker_died")]


async def test_one_of_two_daemons_is_killed(start, ledger: Ledger):
    """The other one does what was in its hand."""
    doomed, survivor = start(), start()
    job_ids = await publish(ledger, *some(20))
    await doomed.until_logged("job_completed")
    doomed.kill()
    for job_id in job_ids:
        await ledger.completed(job_id)
    await survivor.stop()
    await ledger.check()


async def test_the_time_to_finish_is_too_short(start, ledger: Ledger, s3):
    """A daemon that is stopped by its own limit loses nothing, and ends in an orderly way."""
    leaving = start(store=s3, UTTERD_LIFECYCLE__DRAIN_TIMEOUT_S="0.05")
    await leaving.until_logged("consuming")
    s3.break_down(Fault.SLOW)
    job_ids = await publish(ledger, *some(6))
    await ledger.event(job_ids[0], EventType.STARTED)
    await leaving.stop()
    s3.heal()
    daemon = start(store=s3)
    for job_id in job_ids:
        await ledger.completed(job_id)
    await daemon.stop()
    await ledger.check()


async def test_a_second_signal_ends_the_daemon_at_once(start, ledger: Ledger, s3):
    """It does not wait for its jobs any longer, and they are another daemon's."""
    leaving = start(store=s3)
    await leaving.until_logged("consuming")
    s3.break_down(Fault.BLACK_HOLE)
    (job_id,) = await publish(ledger, "In the hole.")
    await leaving.until(lambda: s3.requests("HEAD", Fault.BLACK_HOLE))
    leaving.terminate()
    await leaving.until_logged("draining")
    leaving.terminate()
    assert await leaving.ended() == -signal.SIGTERM
    s3.heal()
    daemon = start(store=s3)
    await ledger.completed(job_id)
    await daemon.stop()
    await ledger.check()
