"""Keeps onnxruntime from reporting to its makers.

The wheels of 1.32 collect telemetry on Linux, too: they keep it in the home directory to send it
later, and where they can't, they print a warning into the daemon's log. The variable is read when
the library is loaded.
"""

import os

TELEMETRY_OFF = {"ORT_DISABLE_TELEMETRY": "1"}
"""For the environment of a process that loads onnxruntime."""


def disable_telemetry() -> None:
    """For this process and those that it starts; call it before onnxruntime is imported."""
    os.environ.update(TELEMETRY_OFF)
