"""The engine protocol."""

from pathlib import Path

import pytest

from utterd.engines.protocol import (
    NO_OPTIONS,
    CancelledByCallerError,
    CancelToken,
    EngineOptions,
)


def test_a_token_raises_once_it_is_cancelled():
    """Engines ask as often as they like."""
    token = CancelToken()
    token.raise_if_cancelled()
    token.cancel()
    for _ in range(2):
        with pytest.raises(CancelledByCallerError):
            token.raise_if_cancelled()


def test_options_survive_a_command_line():
    """A worker reads the options that the daemon wrote."""
    options = EngineOptions(bundle=Path("/models/声"), rows=4, euler_steps=5, cache_tokens=512)
    assert EngineOptions.from_json(options.to_json()) == options
    assert EngineOptions.from_json(NO_OPTIONS.to_json()) == NO_OPTIONS
