"""Puts the unit where systemd looks for it."""

import re
import sysconfig
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from utterd.config import ENV_DELIMITER
from utterd.errors import ConfigurationError
from utterd.service.unit import SECRETS, Unit
from utterd.settings_sources import CONFIG_VARIABLE, CREDENTIALS_VARIABLE, setting_paths

UNIT_DIRECTORY = Path("/etc/systemd/system")

# A unit file gives a meaning to blanks, quotes, backslashes and per cent signs.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9/._+-]*")

_HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"), Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - named, not used
"""What the unit's ProtectHome and PrivateTmp hide from the service."""


def installed_command() -> Path:
    """The `utterd` command of the installation that runs this."""
    return Path(sysconfig.get_path("scripts")) / "utterd"


def unit_of_this_host(executable: Path, configuration: Path, *, is_template: bool = False) -> Unit:
    """The unit for an installation, with the secrets that are there.

    Args:
        executable: the installed command.
        configuration: the folder of settings and secrets.
        is_template: whether one unit is to serve several instances.

    Raises:
        ConfigurationError: the service could not reach this installation.
    """
    hidden = next((folder for folder in _HIDDEN if executable.is_relative_to(folder)), None)
    if hidden is not None:
        raise ConfigurationError(
            f"{executable} lies in {hidden}, which the service can't see: install utterd where"
            " every user can read it (in its sources: python3 -m venv /opt/utterd &&"
            " /opt/utterd/bin/pip install .) and run /opt/utterd/bin/utterd service install"
        )
    for path in (executable, configuration):
        if not _PLAIN_PATH.fullmatch(str(path)):
            raise ConfigurationError(
                f"{str(path)!r} can't stand in a unit: use an absolute path of letters, digits and"
                " / . _ + -"
            )
    unit = Unit(executable=executable, is_template=is_template, configuration=configuration)
    if is_template:
        # Each instance has a folder of its own, and none of them is known here.
        return unit
    secrets, encrypted = _secrets_in(unit.secrets_folder), _secrets_in(unit.encrypted_folder)
    if secrets is None and encrypted is None:
        return unit
    encrypted = encrypted or ()
    # The plain file of an encrypted one is about to be removed, and systemd does not start a
    # service whose file is missing.
    plain = [name for name in secrets or () if name not in encrypted]
    return replace(unit, secrets=plain, encrypted=encrypted)


def _secrets_in(folder: Path) -> Sequence[str] | None:
    """The secrets that have a file there; None when there is no such folder.

    Raises:
        ConfigurationError: the folder can't be read, or holds a file that is no setting.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(
            f"{folder} can't be read ({error.strerror}): run this as root"
        ) from error
    known = {path.replace(".", ENV_DELIMITER) for path in setting_paths()}
    if strangers := [name for name in names if name not in known]:
        raise ConfigurationError(
            f"{folder} holds {', '.join(map(repr, strangers))}, which is no setting: the file of a"
            f" secret is named by its path, such as {SECRETS[0]}; move everything else away"
        )
    return names


def install(unit: Unit, directory: Path = UNIT_DIRECTORY) -> Path:
    """Write the unit, in one step; returns its path.

    Raises:
        ConfigurationError: the folder can't be written.
    """
    path = directory / unit.file_name
    staged = path.with_suffix(".new")
    try:
        staged.write_text(unit.render(), encoding="utf-8")
        staged.chmod(0o644)
        staged.replace(path)
    except OSError as error:
        raise ConfigurationError(
            f"{path} can't be written ({error.strerror}): run this as root, or choose another"
            " folder with --directory"
        ) from error
    return path


def next_steps(unit: Unit, path: Path) -> str:
    """What a person does after the unit was written."""
    instance = "utterd@NAME" if unit.is_template else "utterd"
    others = (
        [
            "               No instance starts while one of them is missing. For others, and those",
            "               made by systemd-creds encrypt, change the lines LoadCredential:",
            f"               systemctl edit {instance}",
        ]
        if unit.is_template
        else [
            f"               or made by systemd-creds encrypt, in {unit.encrypted_folder};",
            "               after a new one, write the unit again",
        ]
    )
    steps = [
        f"{path} is written.",
        "",
        f"1. Settings:   {unit.config} (docs/settings.md lists all)",
        f"2. Secrets:    one file each in {unit.secrets_folder}, mode 0600, owned by root:",
        *(f"                 {secret}" for secret in (*unit.secrets, *unit.encrypted)),
        *others,
        f"3. A look:     {CREDENTIALS_VARIABLE}={unit.secrets_folder} \\",
        f"               {CONFIG_VARIABLE}={unit.config} {unit.executable} doctor",
        "4. Start:      systemctl daemon-reload",
        f"               systemctl enable --now {instance}",
        f"5. Watch:      systemctl status {instance}",
        f"               journalctl -u {instance} -o cat -f",
    ]
    if unit.is_template:
        steps.insert(
            2, "Each instance needs a name, its own settings, and a health.port of its own."
        )
    return "\n".join(steps).replace("%i", "NAME")
