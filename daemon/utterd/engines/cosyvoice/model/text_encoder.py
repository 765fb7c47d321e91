"""Text tokens to rows of the language model's input."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from utterd.engines.cosyvoice.bundle import Bundle
from utterd.engines.cosyvoice.model.session import open_session, run
from utterd.errors import TextTooLongError

MASKED = np.float32(-1e9)


class TextEncoder:
    """Safe to use from several threads."""

    def __init__(self, bundle: Bundle) -> None:
        self._session = open_session(bundle.graph("text_encoder"))
        self._embedding = bundle.table("text_embedding")
        self._positions = bundle.table("text_positions")

    def encode(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Encode text; the language model's input layer is applied already.

        Args:
            ids: text tokens, shape (S,), S at least 1.

        Returns:
            Shape (S, D), D the width of the language model.

        Raises:
            TextTooLongError: S is more than the bundle's position table covers.
        """
        rows: NDArray[np.float32] = self._run(ids)[1][0]
        return rows

    def encoding(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The encoder's own output, after its affine layer, shape (S, width). For comparisons."""
        encoding: NDArray[np.float32] = self._run(ids)[0][0]
        return encoding

    def _run(self, ids: NDArray[np.int64]) -> list[Any]:
        size = len(ids)
        if size > self._positions.shape[1]:
            raise TextTooLongError(
                f"a segment has {size} text tokens, the voice takes {self._positions.shape[1]}:"
                " send shorter sentences"
            )
        inputs: dict[str, NDArray[Any]] = {
            "x": self._embedding[ids][None],
            "mask": np.triu(np.full((size, size), MASKED), k=1)[None, None],
        }
        for number, table in enumerate(self._positions):
            inputs[f"positions_{number}"] = table[-size:]
        return run(self._session, inputs)
