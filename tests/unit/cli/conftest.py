"""The command `utterd`, run inside this process."""

import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import structlog

from utterd.__main__ import main
from utterd.config import ENV_PREFIX


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str


@pytest.fixture
def utterd(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Ran]]:
    """Run a command without any settings of this machine's own."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    for name in [*os.environ]:
        if name.startswith(ENV_PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UTTERD_CONFIG", os.devnull)

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "argv", ["utterd", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Ran(ended.value.code or 0, printed.out, printed.err)

    yield run
    # Commands set logging up for a process of their own.
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
