"""Who gets another attempt."""

from hypothesis import given
from hypothesis import strategies as st

from utterd.broker.message import FIRST_ATTEMPT, History
from utterd.errors import EngineFailedError, InvalidSsmlError, WorkerDiedError
from utterd.jobs.retry import MAX_WORKER_DEATHS, history_after, retry_delay_s

DELAYS_S = (10, 60, 600)

FAILED, DIED, WRONG = EngineFailedError("no"), WorkerDiedError("no"), InvalidSsmlError("no")

histories = st.builds(
    History, attempt=st.integers(1, 2**63 - 1), worker_deaths=st.integers(0, 2**63 - 1)
)


def test_each_attempt_waits_for_its_own_delay():
    """The delays are taken in order, and after the last one there is nothing left."""
    history, waits = FIRST_ATTEMPT, []
    while (delay_s := retry_delay_s(FAILED, history, DELAYS_S)) is not None:
        waits.append(delay_s)
        history = history_after(FAILED, history)
    assert waits == list(DELAYS_S)
    assert history == History(attempt=4, worker_deaths=0)


def test_the_second_dead_worker_is_the_last():
    """However many delays are left, and whatever failed between the two."""
    history = history_after(FAILED, history_after(DIED, FIRST_ATTEMPT))
    assert retry_delay_s(FAILED, history, DELAYS_S) == 600
    assert retry_delay_s(DIED, history, DELAYS_S) is None


@given(history=histories, delays_s=st.lists(st.integers(1, 10_000)).map(tuple))
def test_a_job_that_is_wrong_gets_no_other_attempt(history, delays_s):
    """The same job would fail again."""
    assert retry_delay_s(WRONG, history, delays_s) is None


@given(
    history=histories,
    delays_s=st.lists(st.integers(1, 10_000), max_size=5).map(tuple),
    errors=st.lists(st.sampled_from([FAILED, DIED]), min_size=6, max_size=6),
)
def test_every_job_comes_to_an_end(history, delays_s, errors):
    """Whatever history a stranger invents, attempts are no more than delays, deaths than two."""
    attempts = deaths = 0
    for error in errors:
        attempts += 1
        deaths += error is DIED
        if retry_delay_s(error, history, delays_s) is None:
            break
        history = history_after(error, history)
    else:
        raise AssertionError("still not done")
    assert attempts <= len(delays_s) + 1
    assert deaths <= MAX_WORKER_DEATHS
