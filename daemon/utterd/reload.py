"""Takes some settings anew while the daemon runs: at SIGHUP, without losing a job."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import structlog
from pydantic import BaseModel

from utterd.config import Settings
from utterd.errors import ConfigurationError
from utterd.offload import Offload
from utterd.ops.systemd import Notifier
from utterd.settings_sources import load_settings, setting_paths, value_at

log = structlog.get_logger(__name__)

RELOADABLE = (
    "log.",
    "speech.voice",
    "speech.aliases",
    "speech.format",
    "speech.lexicon",
    "broker.url",
    "broker.tls_",
    "store.access_key_id",
    "store.secret_access_key",
    "store.session_token",
)
"""What begins with one of these is taken at once; anything else waits for a restart."""

Apply = Callable[[Settings], Awaitable[Iterable[str]]]


@contextmanager
def reload_on_hangup() -> Iterator[asyncio.Event]:
    """An event that each SIGHUP sets."""
    loop = asyncio.get_running_loop()
    wanted = asyncio.Event()
    before = signal.getsignal(signal.SIGHUP)
    loop.add_signal_handler(signal.SIGHUP, wanted.set)
    try:
        yield wanted
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before)


Part = TypeVar("Part", bound=BaseModel)


def with_reloadable(old: Part, new: Part, path: str = "") -> Part:
    """The old settings with the new values of all that is reloadable.

    Args:
        old: the tree, or a section of it.
        new: the same part of the new tree.
        path: of the section, with a dot at its end.
    """
    changes = {}
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if isinstance(before, BaseModel):
            changes[name] = with_reloadable(before, after, f"{path}{name}.")
        elif f"{path}{name}".startswith(RELOADABLE):
            changes[name] = after
    return old.model_copy(update=changes)


async def keep_reloading(
    wanted: asyncio.Event,
    settings: Settings,
    apply: Apply,
    notifier: Notifier,
    reading: Offload,
) -> None:
    """Read the settings each time that it is wanted, until cancelled.

    Settings that are not legal change nothing: the daemon goes on with those that it has.

    Args:
        wanted: set when the settings are to be read.
        settings: those that the daemon started with.
        apply: takes settings that differ in what is reloadable only, and returns those that name a
            file that was read anew and holds something else; raises `ConfigurationError` before it
            changes anything.
        notifier: tells systemd that the reload has begun and is over.
        reading: where the settings are read.
    """
    while True:
        await wanted.wait()
        wanted.clear()
        notifier.reloading(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)
        try:
            new = (await reading.run(load_settings)).settings
            taken = with_reloadable(settings, new)
            read_anew = await apply(taken)
        except ConfigurationError as error:
            log.error("reload_refused", reason=str(error))  # noqa: TRY400 - where it was raised tells nothing
        except Exception as bug:
            # Whatever a file holds, it must not end a daemon that works.
            log.exception("reload_met_a_bug", error=type(bug).__name__)
        else:
            log.info(
                "reloaded",
                changed=sorted({*_differences(settings, taken), *read_anew}),
                need_a_restart=_differences(taken, new),
            )
            settings = taken
        notifier.done_reloading()


def _differences(one: Settings, other: Settings) -> list[str]:
    return [path for path in setting_paths() if value_at(one, path) != value_at(other, path)]
