"""The command `utterd`, and how its errors reach a person."""

import sys

from utterd.cli import app
from utterd.cli.exit_status import ExitStatus, exit_status_of, leaf_error
from utterd.engines.telemetry import disable_telemetry
from utterd.errors import UtterdError

__all__ = ["main"]


def main() -> None:
    """Run the command line; one clear line and an exit status for each error of ours."""
    disable_telemetry()
    status = ExitStatus.OK
    try:
        app()
    except* (UtterdError, OSError) as errors:
        error = leaf_error(errors)
        print(f"utterd: {error}", file=sys.stderr)  # noqa: T201 - a command line prints
        status = exit_status_of(error)
    # Not in the block above: what is raised there for a group becomes a group, and ends with 1.
    sys.exit(status)


if __name__ == "__main__":
    main()
