"""How a daemon is told to use the brittle engine."""

import os
from collections.abc import Mapping
from pathlib import Path

FAIL, HANG, PERISH, STUMBLE = "Fail", "Hang", "Perish", "Stumble"
"""First words that make the engine misbehave; its own file tells how."""

ENGINE_FOLDER = Path(__file__).with_name("engine")


def brittle_settings() -> Mapping[str, str]:
    """The engine, found as an installed package is, and impatient limits around it."""
    return {
        "PYTHONPATH": os.pathsep.join(
            filter(None, (str(ENGINE_FOLDER), os.environ.get("PYTHONPATH")))
        ),
        "UTTERD_ENGINE__NAME": "brittle",
        "UTTERD_ENGINE__WORKERS": "1",
        "UTTERD_ENGINE__CANCEL_GRACE_S": "0.2",
        "UTTERD_SPEECH__VOICE": "brittle/hum",
        "UTTERD_SPEECH__ALIASES": '{"default": "brittle/hum"}',
        "UTTERD_BROKER__RECONNECT_CAP_S": "0.5",
        "UTTERD_STORE__CONNECT_TIMEOUT_S": "1",
        "UTTERD_STORE__READ_TIMEOUT_S": "1",
        "UTTERD_LIFECYCLE__DRAIN_TIMEOUT_S": "10",
    }
