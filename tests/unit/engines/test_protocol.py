"""The engine protocol."""

import pytest

from utterd.engines.protocol import CancelledByCallerError, CancelToken


def test_a_token_raises_once_it_is_cancelled():
    """Engines ask as often as they like."""
    token = CancelToken()
    token.raise_if_cancelled()
    token.cancel()
    for _ in range(2):
        with pytest.raises(CancelledByCallerError):
            token.raise_if_cancelled()
