import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from utterd.interruptions import MAX_REMEMBERED, Interruption, Interruptions

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def interruptions():
    return Interruptions()


@pytest.fixture
async def working(interruptions):
    """Starts tasks that work until they are interrupted, and waits for their end."""
    tasks = []

    async def start(job_id=None):
        begun: asyncio.Future = asyncio.get_running_loop().create_future()

        async def work_for_ever():
            with interruptions.work() as work:
                work.job_id = job_id
                begun.set_result(work)
                await asyncio.Event().wait()

        tasks.append(asyncio.create_task(work_for_ever()))
        return await begun

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def ended(*works):
    async with asyncio.timeout(5):
        await asyncio.wait([work.task for work in works])


async def test_a_cancel_ends_the_job_of_that_id_alone(interruptions, working):
    """Every delivery of it is interrupted, and no other job."""
    first, again, other = await working("a"), await working("a"), await working("b")
    interruptions.cancel("a", NOW)
    await ended(first, again)
    assert first.interruption is again.interruption is Interruption.CANCELLED
    assert other.interruption is None
    assert not other.task.done()


async def test_what_has_not_begun_is_handed_back(interruptions, working):
    """Begun work stays, and the count tells how much goes."""
    waiting, begun = await working("a"), await working("b")
    begun.begin()
    assert interruptions.hand_back() == 1
    await ended(waiting)
    assert waiting.interruption is Interruption.HANDED_BACK
    assert begun.interruption is None


async def test_the_first_reason_counts(interruptions, working):
    """A job that is called off while it goes back is not cancelled twice."""
    work = await working("a")
    interruptions.hand_back()
    interruptions.cancel("a", NOW)
    assert work.interruption is Interruption.HANDED_BACK
    assert work.task.cancelling() == 1


async def test_what_is_being_settled_is_not_interrupted(interruptions, working):
    """From the close on, an interruption is too late."""
    work = await working("a")
    work.close()
    interruptions.cancel("a", NOW)
    interruptions.hand_back()
    assert work.interruption is None
    assert work.task.cancelling() == 0


async def test_work_that_has_ended_is_forgotten(interruptions):
    """Its task may do something else by then."""
    with interruptions.work() as work:
        work.job_id = "a"
    interruptions.cancel("a", NOW)
    assert interruptions.hand_back() == 0
    assert work.interruption is None


@pytest.mark.parametrize(
    ("published_at", "is_cancelled"),
    [
        (NOW - timedelta(seconds=1), True),
        (NOW, True),
        (None, True),
        (NOW + timedelta(seconds=1), False),
    ],
)
def test_a_cancel_holds_for_what_was_published_before_it(interruptions, published_at, is_cancelled):
    """A job that is sent again on purpose is done; one without a timestamp is an old one."""
    interruptions.cancel("a", NOW)
    assert interruptions.is_cancelled("a", published_at) is is_cancelled
    assert not interruptions.is_cancelled("b", published_at)


def test_old_cancels_are_forgotten_first(interruptions):
    """Memory is bounded, and a repeated cancel is a new one."""
    for number in range(MAX_REMEMBERED):
        interruptions.cancel(str(number), NOW)
    interruptions.cancel("0", NOW)
    interruptions.cancel("one more", NOW)
    assert not interruptions.is_cancelled("1", None)
    assert interruptions.is_cancelled("0", None)
    assert interruptions.is_cancelled("2", None)
