"""What the commands print that need neither broker nor model, and how they end."""

import json

import pytest
import typer

from utterd import __version__
from utterd.cli import app
from utterd.cli.events import Outcome
from utterd_schemas.events import EventType

COMMANDS = [
    ("say",),
    ("publish",),
    ("cancel",),
    ("watch",),
    ("run",),
    ("check",),
    ("voices",),
    ("plan",),
    ("key",),
    ("topology", "apply"),
    ("topology", "check"),
    ("topology", "show"),
    ("dead", "list"),
    ("dead", "show"),
    ("dead", "replay"),
    ("dead", "purge"),
    ("doctor",),
    ("sandbox",),
    ("demo",),
]


def _leaves(command, path=()):
    children = getattr(command, "commands", None)
    if not children:
        yield path
    for name, child in (children or {}).items():
        yield from _leaves(child, (*path, name))


def test_all_commands_are_tested_here():
    """A new command gets its example and its test."""
    assert set(COMMANDS) <= set(_leaves(typer.main.get_command(app)))


@pytest.mark.parametrize("path", sorted(_leaves(typer.main.get_command(app))), ids=" ".join)
def test_every_help_has_an_example(utterd, path):
    """One line begins with `Example:` and holds the command itself."""
    ran = utterd(*path, "--help")
    assert ran.status == 0
    _, _, example = ran.out.partition("Example:")
    assert f"utterd {' '.join(path)}" in " ".join(example.split())


def test_the_help_tells_the_exit_statuses(utterd):
    """The meaning of each is listed once, at the top."""
    out = utterd("--help").out
    for status in ("0 done", "1 failed", "2 wrong usage", "65", "75", "78"):
        assert status in " ".join(out.split())


def test_the_version_is_the_packages(utterd):
    """In one line, after the name."""
    assert utterd("--version").out == f"utterd {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("no-such-command",), 2),
        (("say", "Hello."), 2),
        (("say", "Hello.", "-o", "/no/such/folder/a.wav"), 2),
        (("say", "Hello.", "-o", "/"), 2),
        (("publish", "Hello.", "--save", "/no/such/folder/a.wav"), 2),
        (("publish", "Hello.", "--label", "no-equals-sign"), 2),
        (("publish", "Hello.", "--format", "midi"), 2),
        (("publish", "Hello.", "--lane", "fast"), 2),
        (("watch", "--count", "0"), 2),
        (("cancel",), 2),
        (("cancel", "j-1", "--timeout", "0"), 2),
        (("dead", "show"), 2),
        (("dead", "list", "--older-than", "yesterday"), 2),
        (("dead", "list", "--limit", "0"), 2),
        (("publish", "Hello.", "--speed", "0"), 65),
        (("plan", "..."), 65),
        (("plan", "Hello.", "--voice", "no/body"), 65),
        (("key", "/no/such/job.json"), 65),
        (("say", "Hello.", "--speed", "9", "-o", "a.wav"), 65),
    ],
    ids=str,
)
def test_the_exit_status_tells_whose_fault_it_is(utterd, arguments, status):
    """Wrong usage is 2, an invalid job 65; either is told on standard error alone."""
    ran = utterd(*arguments)
    assert ran.status == status
    assert ran.out == ""
    assert ran.err


@pytest.mark.parametrize(
    "command",
    [
        ("cancel", "j-1"),
        ("cancel", "j-1", "--wait"),
        ("watch",),
        ("topology", "apply"),
        ("dead", "list"),
        ("dead", "show", "j-1"),
        ("dead", "replay", "--dry-run"),
        ("dead", "purge"),
    ],
    ids=" ".join,
)
def test_a_broker_that_is_not_there_is_status_75(utterd, monkeypatch, command):
    """One line says where it was looked for, without the password."""
    monkeypatch.setenv("UTTERD_BROKER__URL", "amqp://user:s3cr3t@127.0.0.1:1/")
    ran = utterd(*command)
    assert (ran.status, ran.out) == (75, "")
    assert "RabbitMQ at 127.0.0.1:1 can't be used" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert "s3cr3t" not in ran.err


def test_publishing_without_a_broker_tries_for_as_long_as_it_may(utterd, monkeypatch):
    """A person is told at once why it takes so long, and in the end that it was in vain."""
    monkeypatch.setenv("UTTERD_BROKER__URL", "amqp://user:s3cr3t@127.0.0.1:1/")
    ran = utterd("publish", "Hello.", "--timeout", "0.1")
    assert (ran.status, ran.out) == (75, "")
    first, *_, last = ran.err.splitlines()
    assert first.endswith("Trying for up to 0.1 s")
    assert last.startswith("utterd: RabbitMQ at 127.0.0.1:1 can't be used")
    assert "s3cr3t" not in ran.err


def test_the_doctor_reports_wrong_settings_as_a_fault(utterd, monkeypatch):
    """Without settings there is nothing else to look at."""
    monkeypatch.setenv("UTTERD_LOG__LEVEL", "loud")
    ran = utterd("doctor", "--json")
    (finding,) = map(json.loads, ran.out.splitlines())
    assert (ran.status, finding["group"], finding["verdict"]) == (1, "settings", "fault")
    assert "log.level" in finding["message"]


@pytest.mark.parametrize("command", [("check",), ("run",), ("voices",), ("plan", "Hello.")])
def test_wrong_settings_are_status_78(utterd, monkeypatch, command):
    """One line names the setting."""
    monkeypatch.setenv("UTTERD_LOG__LEVEL", "loud")
    ran = utterd(*command)
    assert (ran.status, ran.out) == (78, "")
    assert ran.err.startswith("utterd: log.level (environment): ")
    assert len(ran.err.splitlines()) == 1


def test_check_lists_settings_with_their_sources(utterd, monkeypatch):
    """As a table and as JSON, both with secrets redacted."""
    monkeypatch.setenv("UTTERD_BROKER__URL", "amqp://user:s3cr3t@host/")
    monkeypatch.setenv("UTTERD_STORE__BUCKET", "mine")
    table, parsed = utterd("check").out, utterd("check", "--json").out
    assert "s3cr3t" not in table + parsed
    settings = json.loads(parsed)
    assert settings["store.bucket"] == {"value": "mine", "source": "environment"}
    assert settings["broker.url"] == {"value": "**********", "source": "environment"}
    assert settings["broker.limits.retry_delays_s"] == {
        "value": [10, 60, 600],
        "source": "default",
    }
    assert all(path in table for path in settings)


def test_voices_are_listed_for_people_and_for_programs(utterd):
    """Each with its languages and aliases."""
    assert "hibari/heart" in utterd("voices").out
    (voice,) = json.loads(utterd("voices", "--json").out)
    assert (voice["voice"], voice["languages"], voice["aliases"]) == (
        "hibari/heart",
        ["en"],
        ["default"],
    )
    assert voice["sample_rate_hz"] == 24_000


def test_plan_shows_what_would_be_spoken(utterd):
    """Segments with their spoken form, voice, language, output and key, as one JSON document."""
    ran = utterd("plan", "It weighs 5 kg. Hello!", "-f", "mp3", "--bitrate", "32", "--speed", "1.5")
    plan = json.loads(ran.out)
    assert ran.status == 0
    assert [segment["text"] for segment in plan["segments"]] == ["It weighs 5 kg.", "Hello!"]
    assert "kilograms" in plan["segments"][0]["spoken"].lower()
    assert (plan["voice"], plan["language"], plan["speed"]) == ("hibari/heart", "en", 1.5)
    assert plan["output"] == {
        "format": "mp3",
        "sample_rate_hz": 24_000,
        "bitrate_kbps": 32,
        "content_type": "audio/mpeg",
    }
    assert plan["object_name"] == f"{plan['key'][:2]}/{plan['key']}.mp3"


def test_the_key_is_the_plans(utterd, tmp_path):
    """A job in a file, on standard input or on the command line has one key."""
    job = tmp_path / "job.json"
    job.write_text('{"text": "Hello.", "format": "flac"}')
    planned = json.loads(utterd("plan", "Hello.", "--format", "flac").out)
    assert utterd("key", str(job)).out == f"{planned['key']}\n"
    assert json.loads(utterd("key", str(job), "--json").out) == {
        "key": planned["key"],
        "object_name": planned["object_name"],
    }
    assert utterd("key", "-", stdin=job.read_bytes()).out == f"{planned['key']}\n"


def test_text_may_come_from_standard_input(utterd):
    """Without an argument or as a dash, in UTF-8 whatever the locale."""
    for dash in ((), ("-",)):
        plan = json.loads(utterd("plan", *dash, stdin="Café.".encode()).out)
        assert plan["segments"][0]["text"] == "Café."
    ran = utterd("plan", stdin=b"\xff")
    assert (ran.status, ran.out) == (65, "")
    assert "not UTF-8" in ran.err


def test_options_go_before_the_job_file(utterd, tmp_path):
    """What stands on the command line replaces what stands in the file."""
    job = tmp_path / "job.json"
    job.write_text('{"text": "One.", "speed": 0.5, "seed": 7}')
    plan = json.loads(utterd("plan", "--job", str(job), "--seed", "0").out)
    assert (plan["segments"][0]["text"], plan["speed"], plan["seed"]) == ("One.", 0.5, 0)


def test_text_and_job_file_exclude_each_other(utterd, tmp_path):
    """Neither silently replaces the other."""
    job = tmp_path / "job.json"
    job.write_text('{"text": "One."}')
    assert utterd("plan", "Two.", "--job", str(job)).status == 2


def test_a_misspelt_field_of_a_job_file_has_a_hint(utterd, tmp_path):
    """The nearest field is named, as the daemon's own event does."""
    job = tmp_path / "job.json"
    job.write_text('{"text": "One.", "voise": "hibari/heart"}')
    ran = utterd("key", str(job))
    assert ran.status == 65
    assert "did you mean `voice`?" in ran.err


def test_a_file_name_that_is_no_format_is_refused(utterd, tmp_path):
    """Nothing is written in a format that nobody asked for."""
    assert utterd("say", "Hi.", "-o", str(tmp_path / "hi.xyz")).status == 2


def test_outcomes_are_those_of_the_events():
    """`watch --outcome` takes each kind of event and nothing else."""
    assert [str(outcome) for outcome in Outcome] == [kind.outcome for kind in EventType]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_job_file_that_holds_no_object_is_status_65(utterd, tmp_path, content):
    """The message names the file."""
    job = tmp_path / "job.json"
    job.write_bytes(content)
    ran = utterd("key", str(job))
    assert (ran.status, ran.out) == (65, "")
    assert str(job) in ran.err


def test_the_topology_is_shown_without_a_broker(utterd, monkeypatch):
    """As JSON, with the names of the settings."""
    monkeypatch.setenv("UTTERD_BROKER__QUEUES__BATCH", "mine.batch")
    shown = json.loads(utterd("topology", "show").out)
    assert "mine.batch" in [queue["name"] for queue in shown["queues"]]
    assert {"tts.jobs", "tts.events", "tts.dead"} <= {one["name"] for one in shown["exchanges"]}
