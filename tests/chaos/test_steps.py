"""The daemon is killed at every step of a job's way, and another one takes over."""

import asyncio
from uuid import uuid4

import pytest

from chaos import victim
from chaos.brittle import FAIL
from chaos.ledger import Ledger
from chaos.s3_proxy import Fault
from support.place import PATIENCE_S
from utterd.config import QueueLimits
from utterd_schemas.events import EventType

pytestmark = [pytest.mark.sandbox, pytest.mark.chaos]


async def hand_over(start, ledger: Ledger, step: str, job: dict[str, object]) -> str:
    """Have the job done by a daemon that dies at the step, and by one that doesn't."""
    job_id = str(uuid4())
    await ledger.publish({"job_id": job_id} | job)
    assert await start(step).ended() == victim.STATUS
    successor = start()
    await ledger.all_finished()
    # That event may have come from the first one; its lane's next job waits until this one is done.
    following = str(uuid4())
    await ledger.publish({"job_id": following, "text": "Next."})
    await ledger.completed(following)
    await successor.stop()
    return job_id


@pytest.mark.parametrize("step", victim.STEPS)
async def test_killed_on_the_way_to_the_audio(step: str, start, ledger: Ledger):
    """One completed event id, one whole object with its marks, and nothing left to do (S-22)."""
    job_id = await hand_over(
        start, ledger, step, {"text": "It is one. It is another.", "marks": ["sentence"]}
    )
    await ledger.check()
    assert (await ledger.completed(job_id))["data"]["cached"] is False


@pytest.mark.parametrize("step", victim.FAILURE_STEPS)
async def test_killed_on_the_way_to_the_dead(step: str, start, ledger: Ledger):
    """One failed event id, and the job is among the dead with its reason."""
    job_id = await hand_over(start, ledger, step, {"text": "..."})
    await ledger.check(failing=[job_id])
    assert set(await ledger.dead()) == {(job_id, "empty_text")}


@pytest.mark.parametrize("step", victim.RETRY_STEPS)
async def test_killed_on_the_way_to_another_attempt(step: str, start, ledger: Ledger):
    """The job is completed, once, and its attempts are counted where the broker keeps them."""
    job_id = await hand_over(start, ledger, step, {"text": f"{FAIL} at first."})
    await ledger.check()
    assert (await ledger.event(job_id, EventType.COMPLETED))["data"]["attempts"] <= 2


@pytest.mark.parametrize("limits", [QueueLimits(delivery_limit=2)], ids=["two returns"])
async def test_a_job_that_kills_the_daemon_is_given_up_by_the_broker(start, ledger: Ledger):
    """It fails with the broker's reason, is among the dead, and the job behind it is completed."""
    poison, other = str(uuid4()), str(uuid4())
    await ledger.publish({"job_id": poison, "text": "Poison."})
    await ledger.publish({"job_id": other, "text": "Behind it."})
    for _ in range(3):
        assert await start("decoded").ended() == victim.STATUS
    survivor = start()
    await ledger.completed(other)
    assert (await ledger.terminal(poison))["data"]["error"]["code"] == "delivery_limit"
    await ledger.all_finished()
    await survivor.stop()
    await ledger.check(failing=[poison])
    assert await ledger.dead() == [(poison, "delivery_limit")]


async def test_a_finished_job_is_not_given_up(start, ledger: Ledger):
    """Its acknowledgement is lost, and its time runs out before it comes again: it is completed."""
    job_id = str(uuid4())
    await ledger.publish({"job_id": job_id, "text": "In time."}, expiration_s=3)
    assert await start("before the ack").ended() == victim.STATUS
    await ledger.until_lapsed(1)
    successor = start()
    await ledger.all_finished()
    await successor.stop()
    await ledger.check()
    assert len(ledger.events[job_id]) == 3  # started, and twice completed


async def test_a_job_that_lapses_in_its_daemons_hand_ends_once(
    start, ledger: Ledger, s3, management
):
    """Its connection is cut and its time runs out while it is worked on: it has expired."""
    job_id = str(uuid4())
    daemon = start(store=s3)
    await daemon.until_logged("consuming")
    s3.break_down(Fault.BLACK_HOLE)
    await ledger.publish({"job_id": job_id, "text": "Too slow."}, expiration_s=3)
    await daemon.until(lambda: s3.requests("HEAD", Fault.BLACK_HOLE))
    async with asyncio.timeout(PATIENCE_S):
        while not await management.close_connections("utterd consumer"):
            pass
    await ledger.until_lapsed(1)
    s3.heal()
    event = await ledger.terminal(job_id)
    await daemon.stop()
    assert event["type"] == EventType.EXPIRED
    assert {one["id"] for one in ledger.events[job_id] if "started" not in one["type"]} == {
        event["id"]
    }


@pytest.mark.parametrize("limits", [QueueLimits(delivery_limit=2)], ids=["two returns"])
@pytest.mark.parametrize("step", victim.FAILURE_STEPS)
async def test_killed_on_the_way_to_the_end_of_a_lapsed_job(step: str, start, ledger: Ledger):
    """One failed event id, whoever sends it, and the job is among the dead with its reason."""
    job_id = str(uuid4())
    await ledger.publish({"job_id": job_id, "text": "Poison."})
    for _ in range(3):
        assert await start("decoded").ended() == victim.STATUS
    await ledger.until_lapsed(1)
    assert await start(step).ended() == victim.STATUS
    successor = start()
    await successor.until_logged("consuming")
    await ledger.all_finished()
    await successor.stop()
    await ledger.check(failing=[job_id])
    assert set(await ledger.dead()) == {(job_id, "delivery_limit")}
