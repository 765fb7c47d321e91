"""The settings and where they come from."""

import contextlib
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from utterd.config import ENV_PREFIX, Lane, Settings
from utterd.errors import ConfigurationError
from utterd.settings_sources import effective, environment_name, load_settings, setting_paths

SECRET = "s3cr3t-zebra"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, tmp_path):
    """No settings of this machine's own."""
    for name in [*os.environ]:
        if name.startswith(ENV_PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    (tmp_path / "empty.toml").touch()
    monkeypatch.setenv("UTTERD_CONFIG", str(tmp_path / "empty.toml"))


@pytest.fixture
def write_toml(monkeypatch, tmp_path):
    def write(text):
        path = tmp_path / "utterd.toml"
        path.write_text(text, encoding="utf-8")
        monkeypatch.setenv("UTTERD_CONFIG", str(path))
        return path

    return write


@pytest.fixture
def write_credential(monkeypatch, tmp_path):
    def write(name, value):
        directory = tmp_path / "credentials"
        directory.mkdir(exist_ok=True)
        path = directory / name
        path.write_bytes(value if isinstance(value, bytes) else value.encode())
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(directory))
        return path

    return write


@pytest.fixture
def refusal():
    def message():
        with pytest.raises(ConfigurationError) as caught:
            load_settings()
        assert SECRET not in str(caught.value)
        return str(caught.value)

    return message


def origin_of(path):
    return {name: origin for name, _, origin in effective(load_settings())}[path]


def test_the_defaults_run():
    """Nothing has to be set, and every default says that it is one."""
    loaded = load_settings()
    assert loaded.settings.model_dump() == Settings().model_dump()
    assert {origin for _, _, origin in effective(loaded)} == {"default"}


def test_the_first_source_wins(monkeypatch, write_toml, write_credential):
    """Environment before credentials, before the file, before defaults; each is named."""
    path = write_toml('[store]\nbucket = "file"\nregion = "file"\nprefix = "file/"\n')
    write_credential("store__region", "credential")
    write_credential("store__prefix", "credential/")
    monkeypatch.setenv("UTTERD_STORE__PREFIX", "environment/")
    store = load_settings().settings.store
    assert (store.bucket, store.region, store.prefix) == ("file", "credential", "environment/")
    assert origin_of("store.bucket") == f"file {path}"
    assert origin_of("store.region") == "credentials"
    assert origin_of("store.prefix") == "environment"
    assert origin_of("store.kind") == "default"


def test_a_credentials_file_name_is_a_nested_key(write_credential):
    """Two underscores lead one level down, and the last line break is not part of the secret."""
    write_credential("broker__url", "amqp://a:b@c/\n")
    write_credential("broker__exchanges__jobs", "my.jobs\n")
    broker = load_settings().settings.broker
    assert broker.url.get_secret_value() == "amqp://a:b@c/"
    assert broker.exchanges.jobs == "my.jobs"


def test_credentials_of_other_services_are_left_alone(write_credential):
    """A certificate in the same directory is none of our settings."""
    write_credential("server.pem", SECRET)
    write_credential("server.der", b"\xff")
    os.mkfifo(write_credential("server.socket", "").with_name("server.pipe"))
    assert load_settings().settings.model_dump() == Settings().model_dump()


def test_lists_and_sections_are_json_in_a_variable(monkeypatch):
    """A whole section, too, and its parts may be set besides."""
    monkeypatch.setenv("UTTERD_BROKER__LIMITS__RETRY_DELAYS_S", "[1, 2]")
    monkeypatch.setenv("UTTERD_SPEECH__ALIASES", '{"narrator": "hibari/heart"}')
    monkeypatch.setenv("UTTERD_LIFECYCLE", '{"drain_timeout_s": 5}')
    settings = load_settings().settings
    assert settings.broker.limits.retry_delays_s == (1, 2)
    assert settings.speech.aliases == {"narrator": "hibari/heart"}
    assert settings.lifecycle.drain_timeout_s == 5
    assert origin_of("speech.aliases") == "environment"


@pytest.mark.parametrize("name", ["UTTERD_BROKER", "UTTERD_BROKER__LIMITS__RETRY_DELAYS_S"])
def test_what_is_no_json_is_refused_without_a_word_of_it(monkeypatch, refusal, name):
    """The message names the part of the tree and shows how a list is written."""
    monkeypatch.setenv(name, SECRET)
    assert '"broker"' in refusal()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("UTTERD_BROKER__URI", "broker.url"),
        ("UTTERD_BROKR__URL", "UTTERD_BROKER__URL"),
        ("UTTERD_STORE__BUKET", "store.bucket"),
        ("UTTERD_BROKER__EXCHANGES__JOB", "broker.exchanges.jobs"),
    ],
)
def test_an_unknown_variable_is_told_its_nearest(monkeypatch, refusal, name, nearest):
    """A misspelt name is an error, not a comment."""
    monkeypatch.setenv(name, SECRET)
    assert f"did you mean {nearest}?" in refusal()


def test_an_unknown_name_in_the_file_is_told_its_nearest(write_toml, refusal):
    """With the file that it stands in."""
    path = write_toml(f'[store]\nbuckets = "{SECRET}"\n')
    assert refusal() == f"store.buckets (file {path}) is no setting; did you mean store.bucket?"


def test_a_folder_of_credentials_that_is_not_there_is_named(monkeypatch, tmp_path, refusal):
    """A secret that was to be mounted and was not must not become the default."""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "none"))
    message = refusal()
    assert str(tmp_path / "none") in message
    assert "mount" in message


def test_a_credential_may_be_a_link(write_credential, tmp_path):
    """Wherever it leads: whoever made it means what is there."""
    write_credential("broker__url", "").unlink()
    (tmp_path / "url").write_text("amqp://a:b@c/\n")
    (tmp_path / "credentials" / "broker__url").symlink_to(tmp_path / "url")
    assert load_settings().settings.broker.url.get_secret_value() == "amqp://a:b@c/"


@pytest.mark.parametrize("kind", ["no text", "a pipe", "a folder", "a link to nothing"])
def test_a_credential_that_cannot_be_read_is_refused(write_credential, refusal, kind):
    """It must not become the default; nothing of it is told."""
    path = write_credential("broker__url", b"amqp://\xff" + SECRET.encode())
    if kind != "no text":
        path.unlink()
    match kind:
        case "a pipe":
            os.mkfifo(path)
        case "a folder":
            path.mkdir()
        case "a link to nothing":
            path.symlink_to("none")
    assert refusal().startswith(f"credentials: {path} ")


def test_an_unknown_credential_of_ours_is_told_its_nearest(write_credential, refusal):
    """What begins like one of our sections is meant for us."""
    write_credential("broker__uri", SECRET)
    assert "did you mean broker.url?" in refusal()


def test_a_name_like_no_other_is_told_where_all_are_listed(monkeypatch, refusal):
    """There is nothing near it."""
    monkeypatch.setenv("UTTERD_XYZZY", "1")
    assert "docs/settings.md lists all" in refusal()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("UTTERD_BROKER__URL", f"http://user:{SECRET}@host/"),
        ("UTTERD_BROKER__URL", f"amqp://user:{SECRET}@host:99999/"),
        ("UTTERD_BROKER__URL", f"amqp://user:{SECRET}\u2100@host/"),
        ("UTTERD_BROKER__URL", f"amqp://user:{SECRET}[@host/"),
        ("UTTERD_BROKER__URL", f"amqp://user:{SECRET}\\@host/"),
        ("UTTERD_BROKER__URL", f"amqp://user:{SECRET}@ho..st/"),
        ("UTTERD_BROKER__URL", f"amqp:{SECRET}"),
        ("UTTERD_BROKER__URL", SECRET),
        ("UTTERD_BROKER__HEARTBEAT_S", SECRET),
        ("UTTERD_BROKER__CONNECT_TIMEOUT_S", "inf"),
        ("UTTERD_STORE__KIND", SECRET),
        ("UTTERD_STORE__PREFIX", "../up/"),
        ("UTTERD_STORE__ENDPOINT_URL", "localhost:9000"),
        ("UTTERD_STORE__ENDPOINT_URL", f"http://user:{SECRET}\u2100@host"),
        ("UTTERD_STORE__ACCESS_KEY_ID", "key\n"),
        ("UTTERD_EVENTS__SOURCE", "/\udcff"),
        ("UTTERD_HEALTH__HOST", "ho..st"),
        ("UTTERD_SPEECH__FORMAT", SECRET),
        ("UTTERD_STORE__READ_TIMEOUT_S", "9999999"),
        ("UTTERD_ENGINE__WORKERS", "0"),
        ("UTTERD_ENGINE__WORKERS", "99999999999"),
        ("UTTERD_ENGINE__NAME", "no-such-engine"),
        ("UTTERD_LOG__LEVEL", SECRET),
    ],
)
def test_an_illegal_value_is_refused_by_its_name(monkeypatch, refusal, name, value):
    """The message names setting and source, and shows no value that may be a secret."""
    monkeypatch.setenv(name, value)
    message = refusal()
    assert f"{name.removeprefix(ENV_PREFIX).replace('__', '.').lower()} (environment)" in message
    assert name in message


@pytest.mark.parametrize(
    ("name", "value", "item"),
    [
        ("UTTERD_BROKER__LIMITS__RETRY_DELAYS_S", "[10, 99999999999]", ".1"),
        ("UTTERD_LOG__LEVELS", '{"utterd.broker": "loud"}', ".utterd.broker"),
    ],
)
def test_an_illegal_item_is_refused_with_its_place(monkeypatch, refusal, name, value, item):
    """An item has no variable of its own: the one that can be set is named."""
    monkeypatch.setenv(name, value)
    message = refusal()
    setting = name.removeprefix(ENV_PREFIX).replace("__", ".").lower()
    assert f"{setting}{item} (environment)" in message
    assert message.endswith(f"as {name})")


def test_all_faults_are_told_at_once(monkeypatch, refusal):
    """Nobody has to start the daemon once a fault."""
    monkeypatch.setenv("UTTERD_LOG__LEVEL", "loud")
    monkeypatch.setenv("UTTERD_ENGINE__WORKERS", "0")
    message = refusal()
    assert "log.level" in message
    assert "engine.workers" in message


@pytest.mark.parametrize(
    "content",
    [
        f'[store]\nbucket = "{SECRET}\n',
        "\0",
        "a = " + "[" * 5000,
        f"[speech]\nmax_text_chars = {'1' * 5000}\n",
        "#" * 2_000_000,
    ],
    ids=["open string", "nul", "deep", "long number", "large"],
)
def test_a_file_that_is_no_toml_is_refused(write_toml, refusal, content):
    """The message names the file and the place in it."""
    path = write_toml(content)
    assert f"{path} can't be read as TOML" in refusal()


@pytest.mark.parametrize(
    ("name", "value"),
    [("UTTERD_SPEECH__ALIASES", "[" * 50_000), ("UTTERD_SPEECH" + "__A" * 2000, "1")],
)
def test_a_variable_that_is_nested_too_deep_is_refused(monkeypatch, refusal, name, value):
    """It is a fault of the settings like any other."""
    monkeypatch.setenv(name, value)
    assert "too deep" in refusal()


def test_nobody_waits_for_a_pipe(monkeypatch, tmp_path, refusal):
    """A daemon that is told to reload would hang."""
    os.mkfifo(tmp_path / "pipe.toml")
    monkeypatch.setenv("UTTERD_CONFIG", str(tmp_path / "pipe.toml"))
    assert "it is a pipe" in refusal()


def test_no_file_has_a_name_with_a_nul(write_toml, refusal):
    """It would be refused wherever the file is opened, by an error of another kind."""
    write_toml('[store]\ndirectory = "a\\u0000b"\n')
    assert "store.directory" in refusal()


def test_a_long_name_is_not_repeated_in_full(write_toml, refusal):
    """A log line is for reading."""
    write_toml(f"{'a' * 100_000} = 1\n")
    assert len(refusal()) < 500


def test_a_file_that_is_no_text_is_refused(write_toml, refusal):
    """So is one in another encoding."""
    write_toml("").write_bytes(b"\xff\xfe")
    assert "can't be read as TOML" in refusal()


def test_a_missing_file_that_was_asked_for_is_refused(monkeypatch, refusal, tmp_path):
    """A name that was set is meant; the default place may be empty."""
    monkeypatch.setenv("UTTERD_CONFIG", str(tmp_path / "none.toml"))
    assert "which is not there" in refusal()


def test_secrets_are_redacted(monkeypatch):
    """Each setting is listed once, with its value or with stars."""
    monkeypatch.setenv("UTTERD_BROKER__URL", f"amqp://user:{SECRET}@host/")
    monkeypatch.setenv("UTTERD_STORE__SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("UTTERD_STORE__SESSION_TOKEN", SECRET)
    loaded = load_settings()
    rows = {path: value for path, value, _ in effective(loaded)}
    assert SECRET not in json.dumps(rows, default=str) + repr(loaded)
    assert rows["broker.url"] == rows["store.secret_access_key"] == "**********"
    assert rows["store.session_token"] == "**********"
    assert list(rows) == list(setting_paths())


def test_every_setting_has_a_variable_of_its_own(monkeypatch):
    """The name that is told for a setting is the one that sets it."""
    for path in setting_paths():
        assert environment_name(path).startswith(ENV_PREFIX)
    monkeypatch.setenv(environment_name("broker.queues.batch"), "mine")
    assert load_settings().settings.broker.queues.of_lane(Lane.BATCH) == "mine"


def test_every_setting_is_described():
    """Each name has a sentence for those who set it."""

    def undescribed(model):
        for name, field in model.model_fields.items():
            if not field.description:
                yield f"{model.__name__}.{name}"
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                yield from undescribed(field.annotation)

    assert list(undescribed(Settings)) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.sampled_from("[]=\"'#.\n abstore1{}") | st.characters(codec="utf-8")))
def test_any_file_is_settings_or_one_clear_error(write_toml, text):
    """No file makes the daemon fall over in another way."""
    write_toml(text)
    with contextlib.suppress(ConfigurationError):
        load_settings()


def test_an_endpoint_holds_no_password(monkeypatch, refusal):
    """It would stand in the output of `utterd check`."""
    monkeypatch.setenv("UTTERD_STORE__ENDPOINT_URL", f"http://user:{SECRET}@host")
    assert "must not hold credentials" in refusal()


@pytest.mark.parametrize("name", ["PORT", "PORT_80_TCP_ADDR", "SERVICE_HOST", "SERVICE_PORT_HTTP"])
def test_links_to_a_service_of_this_name_are_no_settings(monkeypatch, name):
    """Kubernetes sets them for a service that is called utterd."""
    monkeypatch.setenv(f"UTTERD_{name}", "tcp://10.0.0.1:80")
    assert load_settings().settings
