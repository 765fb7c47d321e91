"""A sandbox for as long as tests need it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from utterd.errors import ConfigurationError
from utterd.sandbox import Sandbox


@contextmanager
def running_sandbox(directory: Path) -> Iterator[Sandbox]:
    """Both servers; what is not installed fails the tests in one line."""
    sandbox = Sandbox(directory)
    try:
        sandbox.start()
    except ConfigurationError as error:
        pytest.fail(str(error), pytrace=False)
    yield sandbox
    sandbox.stop()
