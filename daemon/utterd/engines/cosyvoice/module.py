"""The engine as the registry knows it. Importing this imports no onnxruntime."""

from utterd.engines.cosyvoice.describe import describe
from utterd.engines.cosyvoice.front_end import read
from utterd.engines.protocol import Engine, EngineOptions

__all__ = ["describe", "load", "read"]


def load(options: EngineOptions, *, threads: int) -> Engine:
    """Load the bundle into this process; see `EngineModule.load`."""
    from utterd.engines.cosyvoice.engine import load_engine  # noqa: PLC0415 - it has onnxruntime

    return load_engine(options, threads=threads)
