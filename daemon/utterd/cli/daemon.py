"""`run` and `check`: the daemon and its settings."""

import asyncio
import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager

from utterd.cli.exit_status import leaf_error
from utterd.cli.output import JsonOption, print_json, print_table
from utterd.daemon import run_daemon
from utterd.errors import ConfigurationError
from utterd.ops.logging import configure_logging
from utterd.ops.systemd import Notifier
from utterd.settings_sources import effective, load_settings


def run() -> None:
    """Run the daemon: consume jobs until SIGTERM, then finish what is in hand.

    Example: UTTERD_STORE__BUCKET=speech utterd run
    """
    with last_word(Notifier.from_environment()):
        settings = load_settings().settings
        configure_logging(settings.log)
        # What the watchdog aborts, or a library crashes, says in the log where it was.
        faulthandler.enable()
        asyncio.run(run_daemon(settings))


@contextmanager
def last_word(notifier: Notifier) -> Iterator[None]:
    """Leave in the service's status why it stays down."""
    try:
        yield
    except Exception as error:
        if isinstance(cause := leaf_error(error), ConfigurationError):
            notifier.status(f"stopped: {cause}")
        raise


def check(*, as_json: JsonOption = False) -> None:
    """Print each effective setting and where it comes from; secrets are redacted.

    Example: UTTERD_ENGINE__WORKERS=1 utterd check
    """
    rows = [(path, _plain(value), origin) for path, value, origin in effective(load_settings())]
    if as_json:
        print_json({path: {"value": value, "source": origin} for path, value, origin in rows})
    else:
        print_table(("setting", "value", "source"), rows)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
