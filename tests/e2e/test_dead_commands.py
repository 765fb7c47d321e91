"""`utterd dead`, from a shell."""

import asyncio
import json

import aio_pika
import pytest

from utterd.broker.connection import connect
from utterd.config import Lane

pytestmark = pytest.mark.sandbox

SECRET_TEXT = "What nobody else may read."


@pytest.fixture
async def channel(make_place):
    """The broker's side of a place without a daemon, and how to run commands there."""
    place = make_place()
    assert (await run(place, "topology", "apply")).returncode == 0
    async with await connect(place.broker, "test") as connection, connection.channel() as channel:
        yield place, channel


async def run(place, *arguments, stdin=""):
    return await asyncio.to_thread(place.utterd, *arguments, stdin=stdin)


async def kill_jobs(place, channel, *job_ids) -> None:
    """Publish jobs under a key that fits no lane."""
    exchange = await channel.get_exchange(place.broker.exchanges.jobs)
    for job_id in job_ids:
        body = json.dumps({"job_id": job_id, "text": SECRET_TEXT}).encode()
        await exchange.publish(aio_pika.Message(body), "synthesize.urgent")


async def waiting(channel, queue_name: str) -> int:
    queue = await channel.declare_queue(queue_name, passive=True)
    return queue.declaration_result.message_count


async def test_the_dead_are_listed_shown_replayed_and_removed(channel):
    """Each command does what it says, and a dry run nothing."""
    place, channel = channel
    await kill_jobs(place, channel, "j-1", "j-2", "j-3")

    listed = await run(place, "dead", "list", "--code", "unrouted", "--json")
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [(row["job"], row["lane"]) for row in rows] == [
        ("j-1", "batch"),
        ("j-2", "batch"),
        ("j-3", "batch"),
    ]
    table = await run(place, "dead", "list", "--limit", "2")
    assert "j-2" in table.stdout
    assert "j-3" not in table.stdout
    assert SECRET_TEXT not in listed.stdout + table.stdout

    shown = await run(place, "dead", "show", "j-2", "--json")
    assert json.loads(shown.stdout)["routing_key"] == "synthesize.urgent"
    assert SECRET_TEXT not in shown.stdout
    assert SECRET_TEXT in (await run(place, "dead", "show", "j-2", "--body")).stdout

    dry = await run(place, "dead", "replay", "--job", "j-1", "--dry-run")
    assert dry.stdout == "would be replayed: j-1 (unrouted, lane batch)\n"
    replayed = await run(place, "dead", "replay", "--job", "j-1")
    assert (replayed.returncode, replayed.stdout) == (
        0,
        "replayed: j-1 (unrouted, lane batch)\n",
    )
    assert await waiting(channel, place.broker.queues.of_lane(Lane.BATCH)) == 1

    removed = await run(place, "dead", "purge", "--job", "j-2", "--json")
    assert json.loads(removed.stdout)["action"] == "removed"
    left = await run(place, "dead", "list", "--json")
    assert [json.loads(line)["job"] for line in left.stdout.splitlines()] == ["j-3"]


async def test_nobody_removes_everything_by_mistake(channel):
    """Without a filter, purge asks; only yes is yes."""
    place, channel = channel
    await kill_jobs(place, channel, "j-1", "j-2")
    for answer in ("", "n\n"):
        refused = await run(place, "dead", "purge", stdin=answer)
        assert (refused.returncode, refused.stdout.strip()) == (1, "")
        assert "Remove 2 of 2 dead jobs for good?" in refused.stderr
    dry = await run(place, "dead", "purge", "--dry-run")
    assert dry.stdout.count("would be removed") == 2
    confirmed = await run(place, "dead", "purge", "--limit", "1", stdin="y\n")
    assert confirmed.stdout.strip() == "removed: j-1 (unrouted, lane batch)"
    assert (await run(place, "dead", "purge", "--yes")).returncode == 0
    empty = await run(place, "dead", "list")
    assert (empty.returncode, empty.stdout) == (1, "")
    assert empty.stderr == "no dead job fits\n"


async def test_the_doctor_finds_no_fault(channel):
    """As text for a person and as lines of JSON for a program."""
    place, _ = channel
    for_people, for_programs = await run(place, "doctor"), await run(place, "doctor", "--json")
    assert (for_people.returncode, for_programs.returncode) == (0, 0)
    assert for_people.stdout.splitlines()[-1].endswith(", 0 fault")
    findings = [json.loads(line) for line in for_programs.stdout.splitlines()]
    assert {finding["verdict"] for finding in findings} <= {"ok", "warning"}


@pytest.mark.usefixtures("daemon")
async def test_a_running_job_is_called_off(place, bus):
    """Its terminal event is printed; a job that ended otherwise is status 1."""
    text = "This sentence is spoken again and again. " * 240
    await bus.publish({"job_id": "long", "text": text})
    await bus.event("long", "io.utterd.synthesis.started.v1")
    cancelled = await run(place, "cancel", "long", "--wait")
    assert (cancelled.returncode, cancelled.stderr) == (0, "")
    event = json.loads(cancelled.stdout)
    assert (event["subject"], event["type"]) == ("long", "io.utterd.synthesis.cancelled.v1")
    unknown = await run(place, "cancel", "nobody", "--wait", "--timeout", "0.1")
    assert (unknown.returncode, unknown.stdout) == (75, "")
    told = await run(place, "cancel", "nobody", "nobody")
    assert (told.returncode, told.stdout) == (0, "nobody\n")
