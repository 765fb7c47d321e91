"""The command line: parse, call, print."""

from utterd.cli.app import app

__all__ = ["app"]
