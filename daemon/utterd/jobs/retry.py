"""Whether a job that failed gets another attempt, and when. Pure."""

from utterd.broker.message import History
from utterd.errors import JobError, WorkerDiedError

MAX_WORKER_DEATHS = 2
"""A job that was in hand when so many workers died is taken for their murderer."""


def history_after(error: JobError, history: History) -> History:
    """What the next attempt is told."""
    return History(
        attempt=history.attempt + 1,
        worker_deaths=history.worker_deaths + isinstance(error, WorkerDiedError),
    )


def retry_delay_s(error: JobError, history: History, delays_s: tuple[int, ...]) -> int | None:
    """Seconds until the next attempt, or None when there is to be none.

    Args:
        error: why this attempt failed.
        history: of the attempts so far, this one included.
        delays_s: one for each further attempt that a job may have.
    """
    if not error.retryable or history.attempt > len(delays_s):
        return None
    if history_after(error, history).worker_deaths >= MAX_WORKER_DEATHS:
        return None
    return delays_s[history.attempt - 1]
