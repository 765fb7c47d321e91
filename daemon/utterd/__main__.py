"""The command `utterd`, and how its errors reach a person."""

import sys

from utterd.cli import app
from utterd.cli.exit_status import exit_status_of, leaf_error
from utterd.engines.telemetry import disable_telemetry
from utterd.errors import UtterdError

__all__ = ["main"]


def main() -> None:
    """Run the command line; one clear line and an exit status for each error of ours."""
    disable_telemetry()
    try:
        app()
    except* (UtterdError, OSError) as errors:
        error = leaf_error(errors)
        print(f"utterd: {error}", file=sys.stderr)  # noqa: T201 - a command line prints
        sys.exit(exit_status_of(error))


if __name__ == "__main__":
    main()
