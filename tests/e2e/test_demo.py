"""`utterd demo` and `utterd sandbox`, as a newcomer runs them."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from utterd.config import ENV_PREFIX

pytestmark = pytest.mark.sandbox

NEWCOMER = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}


def demo(directory, **settings):
    return subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "utterd", "demo", "-d", str(directory)],
        env=NEWCOMER | settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_demo_speaks_once_and_then_finds_its_audio(tmp_path):
    """The second-last line is the event, the last one an audio file; settings do not matter."""
    for cached, settings in ((False, {}), (True, {"UTTERD_BROKER__EXCHANGES__JOBS": "elsewhere"})):
        ran = demo(tmp_path, **settings)
        assert (ran.returncode, ran.stderr) == (0, "")
        *_, event_line, path_line = ran.stdout.splitlines()
        event = json.loads(event_line)
        assert event["type"] == "io.utterd.synthesis.completed.v1"
        assert event["data"]["cached"] is cached
        assert Path(path_line).is_absolute()
        assert soundfile.info(path_line).frames == event["data"]["frames"]


def test_the_sandbox_prints_the_environment_to_use(tmp_path):
    """The lines are for a shell, and Ctrl-C ends it with status 0."""
    with subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "utterd", "sandbox", "-d", str(tmp_path)],
        env=NEWCOMER,
        stdout=subprocess.PIPE,
        text=True,
    ) as sandbox:
        lines = iter(sandbox.stdout.readline, "# Ctrl-C stops both servers.\n")
        exported = dict(
            shlex.split(line)[1].split("=", 1) for line in lines if line.startswith("export ")
        )
        sandbox.send_signal(signal.SIGINT)
        assert sandbox.wait(60) == 0
    assert exported["UTTERD_BROKER__URL"].startswith("amqp://")
    assert exported["UTTERD_STORE__ENDPOINT_URL"].startswith("http://127.0.0.1:")
