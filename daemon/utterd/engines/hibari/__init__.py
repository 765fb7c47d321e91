"""hibari: the embedded default, American English at 24 kHz, its model inside a Python package."""

from utterd.engines.hibari.describe import describe
from utterd.engines.hibari.engine import load
from utterd.engines.hibari.front_end import read

__all__ = ["describe", "load", "read"]
