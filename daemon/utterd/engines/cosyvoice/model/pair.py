"""Two computations that a stage hands out together, for whoever knows of free cores to run."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Half = Callable[[], NDArray[np.float32]]
Pair = Callable[[Half, Half], tuple[NDArray[np.float32], NDArray[np.float32]]]
"""Runs two computations, one after the other or side by side, and returns both results."""


def in_turn(first: Half, second: Half) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Run one after the other."""
    return first(), second()
