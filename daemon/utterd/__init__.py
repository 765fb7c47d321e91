"""utterd: a queue of text in, audio in a bucket and an event out."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("utterd")
