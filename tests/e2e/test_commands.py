"""The commands that talk to a broker, a bucket or a model."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from importlib.metadata import distribution

import pytest
import soundfile

from support.place import PATIENCE_S
from utterd_schemas.events import EventType

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def daemon(place, start):
    """A daemon whose lanes are there from the first test on."""
    assert place.utterd("topology", "apply").returncode == 0
    return start()


@pytest.mark.usefixtures("daemon")
def test_publish_prints_the_id(place):
    """The job's own where it has one, and one made for it elsewhere."""
    ran = place.utterd("publish", "Fire and forget.", "--id", "mine", "--lane", "batch")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "mine\n", "")
    ran = place.utterd("publish", "Fire and forget.", "--json")
    assert len(json.loads(ran.stdout)["job_id"]) == 36


@pytest.mark.usefixtures("daemon")
def test_publish_waits_and_saves(place, files):
    """The terminal event is printed as JSON, and the file is the object."""
    path = files / "saved.mp3"
    ran = place.utterd("publish", "-", "-f", "mp3", "--save", str(path), stdin="From a pipe.")
    assert (ran.returncode, ran.stderr) == (0, "")
    data = json.loads(ran.stdout)["data"]
    assert sha256(path.read_bytes()).hexdigest() == data["sha256"]
    assert soundfile.info(path).frames == data["frames"]


@pytest.mark.usefixtures("daemon")
def test_publish_takes_a_job_file(place, files):
    """Its fields reach the daemon; a job that fails there is status 1."""
    path = files / "job.json"
    path.write_text('{"job_id": "from-file", "text": "From a file.", "labels": {"page": "3"}}')
    event = json.loads(place.utterd("publish", "--job", str(path), "--wait").stdout)
    assert (event["subject"], event["data"]["labels"]) == ("from-file", {"page": "3"})
    ran = place.utterd("publish", "--job", str(path), "--voice", "no/body", "--wait")
    assert (ran.returncode, ran.stderr) == (1, "")
    assert json.loads(ran.stdout)["data"]["error"]["code"] == "unknown_voice"


@pytest.mark.usefixtures("daemon")
async def test_publish_can_ask_for_the_beginning_early(place, bus):
    """A segment is announced with an object of its own before the whole is there."""
    ran = place.utterd("publish", "The first of two. And the second one.", "--stream", "--wait")
    job_id = json.loads(ran.stdout)["subject"]
    first = await bus.event(job_id, EventType.PROGRESS)
    assert await bus.audio(first["data"]["segment"])


async def test_watch_prints_events_as_they_come(place, bus):
    """As many as were asked for, of the outcome that was asked for."""
    watching = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
        [sys.executable, "-m", "utterd", "watch", "-n", "1", "--outcome", "completed", "--json"],
        env=place.environ(),
        stdout=subprocess.PIPE,
        text=True,
    )
    printed = asyncio.create_task(asyncio.to_thread(watching.communicate), name="watch")
    # Only the events from now on are watched, and nothing tells when now is.
    async with asyncio.timeout(60):
        while not printed.done():
            await bus.run("Look here.")
    out, _ = await printed
    assert watching.returncode == 0
    assert json.loads(out)["type"] == "io.utterd.synthesis.completed.v1"


def test_say_needs_neither_broker_nor_bucket(place, files):
    """The format is the file name's, and the facts are the file's."""
    path = files / "said.flac"
    nowhere = {"UTTERD_BROKER__URL": "amqp://127.0.0.1:1/", "UTTERD_STORE__KIND": "filesystem"}
    ran = place.utterd("say", "Hello there.", "-o", str(path), "--json", **nowhere)
    assert (ran.returncode, ran.stderr) == (0, "")
    facts = json.loads(ran.stdout)
    assert soundfile.info(path).format == "FLAC"
    assert soundfile.info(path).frames == facts["frames"]
    assert sha256(path.read_bytes()).hexdigest() == facts["sha256"]


def test_speaking_leaves_nothing_in_the_home_directory(place, files):
    """There, onnxruntime keeps what it reports to its makers, unless it is told not to."""
    home = files / "home"
    home.mkdir()
    ran = place.utterd("say", "Hello there.", "-o", str(files / "private.wav"), HOME=str(home))
    assert ran.returncode == 0
    assert list(home.rglob("*")) == []


def say_to_standard_output(place, *arguments, stdout=subprocess.PIPE):
    return subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "utterd", "say", "Hello there.", "-o", "-", *arguments],
        env=place.environ(),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=False,
    )


def test_say_writes_into_a_pipe(place):
    """Nothing but the audio is on standard output; the facts are on standard error."""
    ran = say_to_standard_output(place, "-f", "flac", "--json")
    assert ran.returncode == 0
    facts = json.loads(ran.stderr)
    assert sha256(ran.stdout).hexdigest() == facts["sha256"]
    assert facts["content_type"] == "audio/flac"


def test_say_does_not_write_onto_a_terminal(place):
    """It is refused before anything is spoken."""
    ours, terminal = os.openpty()
    ran = say_to_standard_output(place, stdout=terminal)
    os.close(ours)
    os.close(terminal)
    assert ran.returncode == 2
    assert b"use a pipe" in ran.stderr


def test_a_cut_model_file_is_named(place, files):
    """Before the native code sees it: one line, status 78, and what to do (P-08)."""
    installed = distribution("hibari-tts")
    copy = files / "cut"
    shutil.copytree(installed.locate_file("hibari"), copy / "hibari")
    metadata = f"hibari_tts-{installed.version}.dist-info"
    shutil.copytree(installed.locate_file(metadata), copy / metadata)
    model = copy / "hibari/assets/hibari.onnx"
    os.truncate(model, model.stat().st_size // 2)
    path = os.pathsep.join((str(copy), os.environ.get("PYTHONPATH", "")))
    ran = place.utterd("say", "Hello.", "-o", str(files / "no.wav"), PYTHONPATH=path)
    assert (ran.returncode, ran.stdout) == (78, "")
    (line,) = ran.stderr.splitlines()
    assert f"hibari.onnx is broken: its {model.stat().st_size} bytes" in line
    assert "pip install --force-reinstall" in line


@pytest.fixture(scope="module")
def fresh_place(make_place):
    """A place where nothing is declared and no daemon runs."""
    return make_place()


def test_the_topology_is_checked_and_applied(fresh_place):
    """A missing or different piece is status 78 and is named; check makes nothing."""
    missing = fresh_place.utterd("topology", "check")
    assert (missing.returncode, missing.stdout) == (78, "")
    assert fresh_place.broker.queues.interactive in missing.stderr
    unpublished = fresh_place.utterd("publish", "Hello.")
    assert (unpublished.returncode, unpublished.stdout) == (78, "")
    assert fresh_place.utterd("topology", "apply").returncode == 0
    assert fresh_place.utterd("topology", "check").returncode == 0
    different = fresh_place.utterd("topology", "check", UTTERD_BROKER__LIMITS__MAX_LENGTH="5")
    assert different.returncode == 78
    assert "x-max-length" in different.stderr
    assert len(different.stderr.splitlines()) == 1


def test_publish_gives_up_when_nobody_answers(fresh_place):
    """Status 75 after the time that was given; the job waits for a daemon."""
    assert fresh_place.utterd("topology", "apply").returncode == 0
    ran = fresh_place.utterd("publish", "Is anybody there?", "--wait", "--timeout", "0.1")
    assert (ran.returncode, ran.stdout) == (75, "")
    assert "no terminal event" in ran.stderr


def test_the_doctor_speaks_alone_when_the_broker_is_down(place):
    """Its findings are all that it prints, with what to do, and status 1."""
    ran = place.utterd("doctor", UTTERD_BROKER__URL="amqp://guest:guest@127.0.0.1:1/")
    assert ran.returncode == 1
    assert "RabbitMQ at 127.0.0.1:1 can't be used" in ran.stdout
    assert ran.stderr == ""
