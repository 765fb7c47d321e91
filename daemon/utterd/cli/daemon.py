"""`run` and `check`: the daemon and its settings."""

import asyncio
import faulthandler

from utterd.cli.output import JsonOption, print_json, print_table
from utterd.daemon import run_daemon
from utterd.ops.logging import configure_logging
from utterd.settings_sources import effective, load_settings


def run() -> None:
    """Run the daemon: consume jobs until SIGTERM, then finish what is in hand.

    Example: UTTERD_STORE__BUCKET=speech utterd run
    """
    # What the watchdog aborts, or a library crashes, says in the log where it was.
    faulthandler.enable()
    settings = load_settings().settings
    configure_logging(settings.log)
    asyncio.run(run_daemon(settings))


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
