"""Repeats what a client does while the broker comes and goes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aio_pika.exceptions import ProbableAuthenticationError
from aiormq.exceptions import AuthenticationError

from utterd.backoff import FullJitter
from utterd.client import Client, open_client
from utterd.config import BrokerSettings
from utterd.errors import BrokerUnavailableError

Result = TypeVar("Result")

_DELAYS = FullJitter(base_s=0.2, cap_s=5.0)
# A step with a time limit of its own is to say itself what it waited for.
_MARGIN_S = 1.0


async def persist(
    settings: BrokerSettings,
    name: str,
    action: Callable[[Client, float], Awaitable[Result]],
    *,
    timeout_s: float,
    on_failure: Callable[[BrokerUnavailableError], None],
    delays: FullJitter = _DELAYS,
) -> Result:
    """Do something that may be repeated, on one client after another while the broker is away.

    Args:
        settings: which broker.
        name: how the broker's own tools list the connections.
        action: gets a client, and how many seconds are left.
        timeout_s: for all attempts together.
        on_failure: told of each attempt that is followed by another.
        delays: waits between attempts.

    Raises:
        BrokerUnavailableError: the last attempt's, when time is up; at once, when the broker
            refuses the login.
        UtterdError: any other of the action's, at once.
    """
    now = asyncio.get_running_loop().time
    deadline = now() + timeout_s
    failures = 0
    last = BrokerUnavailableError(
        f"the broker did not answer within {timeout_s:g} s: look at its alarms and its load"
    )
    try:
        async with asyncio.timeout_at(deadline + _MARGIN_S):
            while True:
                try:
                    async with open_client(settings, name) as client:
                        return await action(client, max(0.0, deadline - now()))
                except BrokerUnavailableError as error:
                    last = error
                    if now() >= deadline or _is_login_refused(error):
                        raise
                failures += 1
                on_failure(last)
                await delays.wait(failures)
    except TimeoutError:
        raise last from None


def _is_login_refused(error: BrokerUnavailableError) -> bool:
    return isinstance(error.__cause__, AuthenticationError | ProbableAuthenticationError)
