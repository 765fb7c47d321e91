"""Daemons as processes: their end, their company, and what they leave behind."""

import asyncio
import os
import signal
from uuid import uuid4

import pytest

from utterd_schemas.events import EventType, event_id

pytestmark = pytest.mark.sandbox

LONG_TEXT = " ".join(f"Sentence number {number} of a long story." for number in range(25))


def terminal_ids(bus, job_id):
    return {
        event["id"]
        for event in bus.events
        if event["subject"] == job_id and EventType(event["type"]).is_terminal
    }


async def test_sigterm_in_mid_job_loses_nothing(bus, start):
    """The job in hand is finished and acked, the exit status is 0, the rest is another's (P-01)."""
    jobs = {str(uuid4()): LONG_TEXT} | {str(uuid4()): f"Short {n}." for n in range(5)}
    first, *others = jobs
    leaving = start(UTTERD_EVENTS__PROGRESS="true")
    await bus.publish({"job_id": first, "text": jobs[first]})
    await bus.event(first, EventType.PROGRESS)
    for job_id in others:
        await bus.publish({"job_id": job_id, "text": jobs[job_id]})
    leaving.terminate()
    assert await asyncio.to_thread(leaving.wait) == 0
    assert leaving.log[-1]["event"] == "stopped"
    assert first in leaving.completed
    coming = start()
    for job_id in jobs:
        await bus.completed(job_id)
        assert terminal_ids(bus, job_id) == {str(event_id(job_id, EventType.COMPLETED))}
    assert sorted(leaving.completed + coming.completed) == sorted(jobs)
    assert await bus.waiting() == 0
    coming.terminate()
    assert await asyncio.to_thread(coming.wait) == 0


async def test_a_daemon_that_the_watchdog_aborts_says_where_it_was(start_alone):
    """The signal leaves no other trace of what held it up."""
    daemon = start_alone()
    await daemon.until_logged("consuming")
    os.kill(daemon.pid, signal.SIGABRT)
    assert await asyncio.to_thread(daemon.wait) == -signal.SIGABRT
    assert "(most recent call first)" in daemon.log_path.read_text()


async def test_what_waited_too_long_is_told_of(bus, start):
    """No daemon ran while the job expired in its lane; the next one sends its event."""
    job_id = str(uuid4())
    reply = await bus.channel.declare_queue(exclusive=True)
    await bus.publish(
        {"job_id": job_id, "text": "Too late.", "labels": {"page": "3"}},
        expiration=0.01,
        reply_to=reply.name,
    )
    await bus.until_lapsed(1)
    daemon = start()
    event = await bus.terminal(job_id)
    assert event["type"] == EventType.EXPIRED
    assert event["data"]["labels"] == {"page": "3"}
    async with reply.iterator(timeout=10) as replies:
        copy = await anext(replies)
        await copy.ack()
    assert copy.message_id == event["id"]
    await bus.until_lapsed(0)
    daemon.terminate()
    assert await asyncio.to_thread(daemon.wait) == 0


async def test_two_daemons_share_a_queue(bus, start):
    """Both take part, each job is told of once, and equal jobs end with one object."""
    daemons = start(), start()
    job_ids = []
    async with asyncio.timeout(60):
        while not all(daemon.completed for daemon in daemons):
            batch = [str(uuid4()) for _ in range(4)]
            for job_id in batch:
                await bus.publish({"job_id": job_id, "text": f"Job {len(job_ids)} of many."})
            for job_id in batch:
                await bus.completed(job_id)
            job_ids += batch
    assert sorted(job_ids) == sorted(daemons[0].completed + daemons[1].completed)
    assert all(len(terminal_ids(bus, job_id)) == 1 for job_id in job_ids)
    equal = [str(uuid4()) for _ in range(4)]
    for job_id in equal:
        await bus.publish({"job_id": job_id, "text": "All of us want the same."})
    assert len({(await bus.completed(job_id))["sha256"] for job_id in equal}) == 1
    for daemon in daemons:
        daemon.terminate()
    for daemon in daemons:
        assert await asyncio.to_thread(daemon.wait) == 0


async def test_no_temporary_file_is_left(bus, start, place):
    """Neither by jobs that succeed nor by jobs that fail, in any format (P-12)."""
    daemon = start()
    await bus.run("Warm.")
    before = sorted(place.temporary.iterdir())
    for number, audio_format in enumerate(("wav", "mp3", "opus", "vorbis", "flac", "ulaw") * 2):
        await bus.run(f"File {number}.", format=audio_format)
        bad = str(uuid4())
        await bus.publish({"job_id": bad, "text": "...", "format": audio_format})
        await bus.terminal(bad)
    assert sorted(place.temporary.iterdir()) == before
    daemon.terminate()
    assert await asyncio.to_thread(daemon.wait) == 0
    assert sorted(place.temporary.iterdir()) == before


async def test_a_different_topology_stops_the_start(start):
    """Status 78 and one line that names the difference."""
    daemon = start(UTTERD_BROKER__LIMITS__MAX_LENGTH="5")
    assert await asyncio.to_thread(daemon.wait) == 78
    last = daemon.log_path.read_text().splitlines()[-1]
    assert last.startswith("utterd: ")
    assert "x-max-length" in last
