"""What a client repeats while the broker comes and goes."""

import asyncio
import json

import pytest
from pydantic import SecretStr

from utterd.backoff import FullJitter
from utterd.broker.submit import LaneFullError
from utterd.client import NoOutcomeError
from utterd.config import Lane
from utterd.errors import BrokerUnavailableError, ConfigurationError
from utterd.persist import persist
from utterd_schemas.job import Job

pytestmark = pytest.mark.sandbox

SHORT_DELAYS = FullJitter(base_s=0.02, cap_s=0.2)
JOB = Job(text="Hello.", job_id="j-1")


class Attempts:
    """Persists in something, and remembers what went wrong on the way."""

    def __init__(self) -> None:
        self.failures: list[BrokerUnavailableError] = []
        self.failed = asyncio.Event()

    async def __call__(self, settings, action, *, timeout_s=20.0):
        return await persist(
            settings,
            "utterd test",
            action,
            timeout_s=timeout_s,
            on_failure=self._note,
            delays=SHORT_DELAYS,
        )

    def _note(self, failure: BrokerUnavailableError) -> None:
        self.failures.append(failure)
        self.failed.set()


@pytest.fixture
def attempts():
    return Attempts()


async def publish(client, _left_s):
    return await client.publish(JOB, Lane.BATCH)


async def test_a_broker_that_comes_back_gets_the_job(through_proxy, proxy, wire, attempts):
    """Refused at first, and then taken under the same id."""
    proxy.accepting = False
    async with asyncio.TaskGroup() as tasks:
        published = tasks.create_task(attempts(through_proxy, publish), name="publish")
        await attempts.failed.wait()
        proxy.accepting = True
    assert published.result() == "j-1"
    assert (await wire.next(through_proxy.queues.batch)).message_id == "j-1"


async def test_a_job_without_a_confirm_is_sent_again(through_proxy, proxy, wire, attempts):
    """A connection that breaks before the confirm costs a repetition, and no job."""
    cut_once = True

    async def publish_and_be_cut(client, left_s):
        nonlocal cut_once
        if cut_once:
            cut_once = False
            proxy.silence()
            asyncio.get_running_loop().call_later(0.05, proxy.cut)
            asyncio.get_running_loop().call_later(0.1, proxy.speak)
        return await publish(client, left_s)

    assert await attempts(through_proxy, publish_and_be_cut) == "j-1"
    assert attempts.failures
    assert json.loads((await wire.next(through_proxy.queues.batch)).body)["job_id"] == "j-1"


async def test_a_broker_that_stays_away_is_told_when_time_is_up(through_proxy, proxy, attempts):
    """The last failure is the reason."""
    proxy.accepting = False
    with pytest.raises(BrokerUnavailableError, match="can't be used"):
        await attempts(through_proxy, publish, timeout_s=0.2)


async def test_a_broker_that_falls_silent_is_told_when_time_is_up(through_proxy, proxy, attempts):
    """Also where nothing fails, the time is kept."""

    async def publish_in_silence(client, left_s):
        proxy.silence()
        return await publish(client, left_s)

    with pytest.raises(BrokerUnavailableError, match=r"did not answer within 0\.2 s"):
        await attempts(through_proxy, publish_in_silence, timeout_s=0.2)


async def test_a_refused_login_is_told_at_once(settings, attempts):
    """Waiting makes no password right."""
    url = settings.url.get_secret_value().replace(":utterd-sandbox@", ":wrong@")
    with pytest.raises(BrokerUnavailableError, match="password"):
        await attempts(settings.model_copy(update={"url": SecretStr(url)}), publish)
    assert not attempts.failures


@pytest.mark.parametrize(
    "error", [LaneFullError("full"), NoOutcomeError("none"), ConfigurationError("no lane")]
)
async def test_an_answer_is_an_answer(settings, attempts, error):
    """A full or missing lane and a job that nobody ends are told at once."""

    async def act(_client, _left_s):
        raise error

    with pytest.raises(type(error)):
        await attempts(settings, act)
    assert not attempts.failures


async def test_waiting_for_an_outcome_has_what_is_left_of_the_time(settings, attempts):
    """The end of the time is told as the missing event, with the job's id."""
    with pytest.raises(NoOutcomeError, match="no terminal event for job j-1"):
        await attempts(
            settings,
            lambda client, left_s: client.publish_and_wait(JOB, Lane.BATCH, timeout_s=left_s),
            timeout_s=0.3,
        )
