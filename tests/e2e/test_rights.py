"""The rights that docs/security.md lists are enough, and no less is."""

import re
from pathlib import Path
from uuid import uuid4

import pytest
from yarl import URL

from support.management import Management
from utterd.cli.exit_status import ExitStatus

pytestmark = pytest.mark.sandbox

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"


def documented_rights(who, prefix):
    """The three patterns of a row, for names that begin with a prefix."""
    (row,) = (line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| {who} |"))
    # A bar within a table's cell is written with a backslash.
    cells = re.split(r"(?<!\\)\|", row)[2:5]
    patterns = [cell.strip().strip("`").replace(r"\|", "|") for cell in cells]
    own = [pattern.replace(r"tts\.", rf"{prefix}\.tts\.") for pattern in patterns]
    return dict(zip(("configure", "write", "read"), own, strict=True))


@pytest.fixture
async def user(sandbox, place):
    """Make users with rights of a row; they are gone after the test."""
    management = Management(sandbox.management_url)
    prefix = place.broker.exchanges.jobs.removesuffix(".tts.jobs")
    made = []

    async def make(who):
        name = f"user-{uuid4().hex[:8]}"
        made.append(name)
        await management.request("PUT", "users", name, body={"password": name, "tags": ""})
        rights = documented_rights(who, prefix)
        await management.request("PUT", "permissions", "/", name, body=rights)
        url = URL(place.broker.url.get_secret_value()).with_user(name).with_password(name)
        return str(url)

    yield make
    for name in made:
        await management.request("DELETE", "users", name)


@pytest.mark.parametrize(
    ("who", "declares"),
    [
        ("a daemon that declares the topology (default)", "true"),
        ("a daemon with `broker.declare_topology = false`", "false"),
    ],
)
async def test_a_daemon_works_with_the_rights_that_it_is_said_to_need(
    bus, start_alone, user, who, declares
):
    """Jobs, retries, the dead, orders and replies."""
    url = await user(who)
    daemon = start_alone(UTTERD_BROKER__URL=url, UTTERD_BROKER__DECLARE_TOPOLOGY=declares)
    reply = await bus.channel.declare_queue(exclusive=True)
    job_id = str(uuid4())
    await bus.publish({"job_id": job_id, "text": "A reply, please."}, reply_to=reply.name)
    await bus.completed(job_id)
    async with reply.iterator(timeout=30) as replies:
        await (await anext(replies)).ack()
    body = f'{{"job_id": "{uuid4()}", "text": "Hello.", "voice": "nobody/none"}}'.encode()
    await bus.publish(body)
    await bus.buried(body)
    assert not [line for line in daemon.log if line["event"] == "orders_not_heard"]


async def test_a_publisher_needs_no_more_than_one_right(bus, place, start_alone, user):
    """It can't read what others say."""
    start_alone()
    url = await user("a publisher")
    published = place.utterd("publish", "From a small user.", UTTERD_BROKER__URL=url)
    assert published.returncode == 0, published.stderr
    await bus.completed(published.stdout.strip())
    watched = place.utterd("watch", "--count", "1", UTTERD_BROKER__URL=url)
    assert watched.returncode == ExitStatus.CONFIGURATION, watched


async def test_a_publisher_may_wait_for_its_event(place, start_alone, user):
    """With a queue of its own for the reply."""
    start_alone()
    url = await user("a publisher that waits for its event, as `publish --wait` does")
    waited = place.utterd("publish", "With an answer.", "--wait", UTTERD_BROKER__URL=url)
    assert waited.returncode == 0, waited.stderr


@pytest.mark.usefixtures("bus")
async def test_an_operator_sees_the_dead_and_calls_jobs_off(place, start_alone, user):
    """Without being able to do a daemon's work."""
    await start_alone().until_logged("consuming")
    url = await user("an operator, for `dead`, `cancel`, `watch` and `topology check`")
    listed = place.utterd("dead", "list", UTTERD_BROKER__URL=url)
    assert (listed.returncode, listed.stderr) == (ExitStatus.FAILED, "no dead job fits\n")
    for command in (("cancel", "job-1"), ("topology", "check")):
        ran = place.utterd(*command, UTTERD_BROKER__URL=url)
        assert ran.returncode == 0, (command, ran.stderr)


async def test_a_subscriber_can_not_publish(place, user):
    """It hears, and is not heard."""
    url = await user("a subscriber with a queue of its own")
    published = place.utterd("publish", "Not allowed.", UTTERD_BROKER__URL=url)
    assert published.returncode == ExitStatus.CONFIGURATION
    assert "may not publish" in published.stderr
    cancelled = place.utterd("cancel", "job-1", UTTERD_BROKER__URL=url)
    assert cancelled.returncode == ExitStatus.CONFIGURATION
    assert "may not write" in cancelled.stderr
