"""Which settings a running daemon takes, and which wait for a restart."""

import pytest

from utterd.config import LogSettings, Settings
from utterd.reload import RELOADABLE, with_reloadable
from utterd.settings_sources import setting_paths, value_at


def changed(one, other):
    return {path for path in setting_paths() if value_at(one, path) != value_at(other, path)}


def test_only_what_is_reloadable_is_taken():
    """The rest stays as the daemon started with it, also in the same section."""
    old = Settings()
    new = old.model_copy(
        update={
            "log": LogSettings(level="debug"),
            "speech": old.speech.model_copy(
                update={"aliases": {"news": "a/b"}, "max_text_chars": 5}
            ),
            "broker": old.broker.model_copy(
                update={
                    "heartbeat_s": 7,
                    "tls_ca_file": "ca.pem",
                    "queues": old.broker.queues.model_copy(update={"dead": "graves"}),
                }
            ),
        }
    )
    taken = with_reloadable(old, new)
    assert changed(old, taken) == {"log.level", "speech.aliases", "broker.tls_ca_file"}
    assert changed(taken, new) == {
        "speech.max_text_chars",
        "broker.heartbeat_s",
        "broker.queues.dead",
    }


@pytest.mark.parametrize("beginning", RELOADABLE)
def test_each_reloadable_name_is_a_setting(beginning):
    """A misspelt one would never be taken, and nobody would notice."""
    assert any(path.startswith(beginning) for path in setting_paths())
