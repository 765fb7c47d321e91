import re
import shutil
import subprocess
from pathlib import Path

import pytest

from utterd.errors import ConfigurationError
from utterd.service.install import install, next_steps, unit_of_this_host
from utterd.service.unit import SECRETS, Unit
from utterd.settings_sources import load_settings

UNITS = Path(__file__).parents[3] / "systemd"

analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze checks the unit, and this machine has no systemd",
)


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - our own command


@pytest.fixture(params=[False, True], ids=["single", "template"])
def unit_file(request, tmp_path):
    """A unit whose command is there, as after an installation."""
    executable = tmp_path / "utterd"
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)
    path = install(Unit(executable=executable, is_template=request.param), tmp_path)
    if not request.param:
        return path
    # systemd-analyze wants an instance of a template.
    instance = path.with_name("utterd@one.service")
    instance.symlink_to(path.name)
    return instance


@pytest.mark.parametrize("unit", [Unit(), Unit(is_template=True)], ids=["single", "template"])
def test_the_units_in_the_tree_are_those_that_are_installed(unit):
    """Made by `python -m utterd.service.unit systemd`."""
    assert (UNITS / unit.file_name).read_text() == unit.render()


@analyze
def test_systemd_finds_nothing_to_complain_about(unit_file):
    """No unknown option, no wrong value, no missing command."""
    checked = run("systemd-analyze", "verify", "--man=no", unit_file)
    assert (checked.stdout, checked.stderr, checked.returncode) == ("", "", 0)


@analyze
def test_the_service_is_hardened(unit_file):
    """An exposure of at most 2.0 of 10, by systemd's own measure."""
    measured = run("systemd-analyze", "security", "--offline=true", unit_file)
    exposure = re.search(r"exposure level for \S+: ([0-9.]+)", measured.stdout)
    assert exposure, measured.stderr
    assert float(exposure[1]) <= 2.0


def test_each_secret_that_has_a_file_gets_a_line(tmp_path):
    """And no other: systemd starts no service whose credential is missing."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "broker__url").write_text("amqp://…")
    text = unit_of_this_host(Path("/opt/utterd/bin/utterd"), tmp_path).render()
    assert re.findall(r"^LoadCredential=(\S+)", text, re.MULTILINE) == [
        f"broker__url:{folder}/broker__url"
    ]


@pytest.mark.parametrize("kind", ["State", "Cache", "Runtime"])
def test_instances_live_beside_the_single_service(kind):
    """A folder inside that of utterd.service can't be made: the instance would end with 238."""
    folder = {
        unit.is_template: re.search(rf"^{kind}Directory=(.+)$", unit.render(), re.MULTILINE)[1]
        for unit in (Unit(), Unit(is_template=True))
    }
    assert folder == {False: "utterd", True: "utterd-%i"}


def test_encrypted_secrets_get_lines_of_their_own(tmp_path):
    """Systemd decrypts them for this service on this machine."""
    folder = tmp_path / "credentials.encrypted"
    folder.mkdir()
    (folder / "broker__url").write_text("…")
    text = unit_of_this_host(Path("/opt/utterd/bin/utterd"), tmp_path).render()
    assert f"LoadCredentialEncrypted=broker__url:{folder}/broker__url" in text
    assert "\nLoadCredential=" not in text


def test_an_encrypted_secret_stands_for_its_plain_file(tmp_path):
    """The plain one can go without another look at the unit."""
    for folder in (tmp_path / "credentials", tmp_path / "credentials.encrypted"):
        folder.mkdir()
        (folder / "broker__url").write_text("…")
    (tmp_path / "credentials" / "store__access_key_id").write_text("…")
    unit = unit_of_this_host(Path("/opt/utterd/bin/utterd"), tmp_path)
    assert unit.secrets == ["store__access_key_id"]
    assert unit.encrypted == ["broker__url"]


@pytest.mark.parametrize("name", ["broker__url~", ".broker__url.swp", "a b", "x\nFoo=x", "broker"])
def test_a_file_that_is_no_secret_is_refused(tmp_path, name):
    """An editor's copy would end the service with status 78, and a newline would be a line."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / name).touch()
    with pytest.raises(ConfigurationError, match="no setting"):
        unit_of_this_host(Path("/opt/utterd/bin/utterd"), tmp_path)


@pytest.mark.parametrize("path", ["etc/utterd", "/etc/my utterd", "/etc/100%", "/etc/a\nb"])
def test_a_path_that_a_unit_would_read_otherwise_is_refused(path):
    """Relative ones, blanks, specifiers and newlines."""
    with pytest.raises(ConfigurationError, match="absolute path"):
        unit_of_this_host(Path("/opt/utterd/bin/utterd"), Path(path))


def test_before_there_are_secrets_the_usual_ones_are_expected(tmp_path):
    """The next steps name their files."""
    unit = unit_of_this_host(Path("/opt/utterd/bin/utterd"), tmp_path)
    assert tuple(unit.secrets) == SECRETS
    steps = next_steps(unit, Path("/etc/systemd/system/utterd.service"))
    assert all(secret in steps for secret in SECRETS)


def test_instances_have_settings_secrets_and_folders_of_their_own(tmp_path):
    """Two daemons must not share a spool, nor a port."""
    unit = unit_of_this_host(Path("/opt/utterd/bin/utterd"), tmp_path, is_template=True)
    text = unit.render()
    assert f"UTTERD_CONFIG={tmp_path}/%i.toml" in text
    assert "StateDirectory=utterd-%i" in text
    assert f"{tmp_path}/credentials.%i/broker__url" in text
    assert "health.port" in next_steps(unit, tmp_path / unit.file_name)


def test_a_template_knows_no_secrets_of_its_instances(tmp_path):
    """Writing it again would add no line: other secrets are a matter of a drop-in."""
    (tmp_path / "credentials.news.encrypted").mkdir()
    (tmp_path / "credentials.news.encrypted" / "broker__url").write_text("…")
    unit = unit_of_this_host(Path("/opt/utterd/bin/utterd"), tmp_path, is_template=True)
    assert "LoadCredentialEncrypted" not in unit.render()
    steps = next_steps(unit, tmp_path / unit.file_name)
    assert "systemctl edit utterd@NAME" in steps
    assert "write the unit again" not in steps


@pytest.mark.parametrize("hidden", ["root", "home/me", "run/user/0"])
def test_an_installation_that_the_service_could_not_see_is_refused(hidden, tmp_path):
    """Its unit would fail at night with a status that nobody knows."""
    with pytest.raises(ConfigurationError, match="/opt/utterd"):
        unit_of_this_host(Path("/") / hidden / "venv/bin/utterd", tmp_path)


def test_the_example_settings_are_legal(monkeypatch):
    """Whoever copies them has a daemon that starts."""
    monkeypatch.setenv("UTTERD_CONFIG", str(UNITS / "utterd.toml"))
    assert load_settings().settings.store.prefix == "speech/"


def test_a_folder_that_can_not_be_written_says_what_to_do(tmp_path):
    """Most people forget sudo."""
    with pytest.raises(ConfigurationError, match="as root"):
        install(Unit(), tmp_path / "absent")
