"""Finds the settings: environment, systemd credentials, TOML file, defaults; the first wins."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NestedSecretsSettingsSource,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsError,
)

from utterd.config import ENV_DELIMITER, ENV_PREFIX, Settings
from utterd.errors import ConfigurationError
from utterd.small_file import read_small_file

CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"
CREDENTIALS_VARIABLE = "CREDENTIALS_DIRECTORY"
DEFAULT_CONFIG = Path("/etc/utterd/utterd.toml")

# Kubernetes and Docker links set these for a service that is called utterd.
_SERVICE_LINK = re.compile(ENV_PREFIX + r"(SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_\w+)")

_TOO_DEEP = "{}: a list or a table is nested too deep to be a setting"

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The effective settings, and where each value comes from.

    Attributes:
        settings: validated.
        origins: dotted path of a setting to the name of its source; unlisted ones are defaults.
    """

    settings: Settings
    origins: Mapping[str, str]


def load_settings() -> LoadedSettings:
    """Read all sources and validate their merger.

    Raises:
        ConfigurationError: a name is unknown or a value is illegal; each is named with its source.
    """
    _refuse_unknown_variables()
    sources = [
        ("environment", _environment()),
        ("credentials", _credentials()),
        (f"file {_config_path()}", _toml(_config_path())),
    ]
    merged: Tree = {}
    origins: dict[str, str] = {}
    for name, tree in reversed(sources):
        try:
            _merge(merged, tree)
            origins |= dict.fromkeys(_leaves(tree), name)
        except RecursionError:
            raise ConfigurationError(_TOO_DEEP.format(name)) from None
    try:
        # A class of its own, so that pydantic-settings doesn't read the environment again.
        settings = _Merged(**merged)
    except ValidationError as error:
        raise ConfigurationError(_describe(error, origins)) from None
    return LoadedSettings(settings, origins)


class _Merged(Settings):
    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings passes it
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def _environment() -> Tree:
    try:
        return EnvSettingsSource(Settings)()
    except SettingsError as error:
        raise ConfigurationError(_not_json(error, "environment")) from None
    except RecursionError:
        raise ConfigurationError(_TOO_DEEP.format("environment")) from None


def _credentials() -> Tree:
    directory = os.environ.get(CREDENTIALS_VARIABLE)
    if not directory:
        return {}
    if not Path(directory).is_dir():
        raise ConfigurationError(
            f"{CREDENTIALS_VARIABLE} names {directory}, which is no directory: mount the secrets"
            " there, or unset it"
        )
    files = SecretsSettingsSource(Settings, secrets_dir=directory)
    try:
        return _Credentials(files, env_prefix="", secrets_nested_delimiter=ENV_DELIMITER)()
    except SettingsError as error:
        raise ConfigurationError(_not_json(error, "credentials")) from None
    except RecursionError:
        raise ConfigurationError(_TOO_DEEP.format("credentials")) from None


class _Credentials(NestedSecretsSettingsSource):
    """Files of ours, wherever their links lead. A file that can't be read is no default."""

    def validate_secrets_path(self, path: Path) -> None:
        """Nothing: each file is checked as it is read, and those of others are not."""

    @classmethod
    def load_secrets(cls, path: Path) -> dict[str, str]:
        """The secrets by their files' names.

        Raises:
            ConfigurationError: the folder or a file of ours can't be read.
        """
        secrets = {}
        file = path
        try:
            for file in path.iterdir():
                if file.name.split(ENV_DELIMITER)[0].lower() in Settings.model_fields:
                    secrets[file.name] = read_small_file(file).decode().strip()
        except UnicodeDecodeError:
            raise ConfigurationError(
                f"credentials: {file} is no text in UTF-8: write it again"
            ) from None
        except OSError as error:
            raise ConfigurationError(
                f"credentials: {file} can't be read ({error.strerror}): give the daemon's user the"
                " right to read it, or remove it"
            ) from None
        return secrets


def _not_json(error: SettingsError, origin: str) -> str:
    # The error names a part of the tree and a class of its own, and quotes no value.
    what, _, _ = str(error).partition(" from source")
    return (
        f"{origin}: {what}. A list or a whole section is written as JSON there, such as [10, 60];"
        f" a single setting has a name of its own, such as {ENV_PREFIX}LOG{ENV_DELIMITER}LEVEL"
    )


def _config_path() -> Path:
    return Path(os.environ.get(CONFIG_VARIABLE, DEFAULT_CONFIG))


def _toml(path: Path) -> Tree:
    try:
        return tomllib.loads(read_small_file(path).decode())
    except FileNotFoundError:
        if CONFIG_VARIABLE in os.environ:
            raise ConfigurationError(
                f"{CONFIG_VARIABLE} names {path}, which is not there: write the file, or unset it"
            ) from None
        return {}
    # Besides its own error, tomllib raises others of a hostile file: too deep, or a number of
    # thousands of digits.
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} can't be read as TOML: {error}") from None


def _refuse_unknown_variables() -> None:
    known = {(ENV_PREFIX + section).upper() for section in Settings.model_fields}
    for variable in os.environ:
        upper = variable.upper()
        if not upper.startswith(ENV_PREFIX) or upper == CONFIG_VARIABLE:
            continue
        if _SERVICE_LINK.fullmatch(upper):
            continue
        if upper.split(ENV_DELIMITER)[0] not in known:
            paths = [environment_name(path) for path in setting_paths()]
            raise ConfigurationError(
                f"the environment holds {variable}, which is no setting" + _nearest(upper, paths)
            )


def _merge(base: Tree, over: Mapping[str, Any]) -> None:
    for name, value in over.items():
        if isinstance(value, Mapping) and isinstance(base.get(name), dict):
            _merge(base[name], value)
        else:
            base[name] = dict(value) if isinstance(value, Mapping) else value


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield path + name


def setting_paths(model: type[BaseModel] = Settings, path: str = "") -> Iterator[str]:
    """The dotted path of every setting."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from setting_paths(field.annotation, f"{path}{name}.")
        else:
            yield path + name


def value_at(settings: Settings, path: str) -> object:
    """The value of a setting, by its dotted path."""
    value: object = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def environment_name(path: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + path.replace(".", ENV_DELIMITER).upper()


def _describe(error: ValidationError, origins: Mapping[str, str]) -> str:
    return "; ".join(
        _describe_one(".".join(map(str, fault["loc"])), fault["type"], fault["msg"], origins)
        for fault in error.errors(include_input=False, include_context=False, include_url=False)
    )


def _describe_one(path: str, kind: str, message: str, origins: Mapping[str, str]) -> str:
    # A fault may lie in an item of a list or a table.
    setting = next((known for known in setting_paths() if f"{path}.".startswith(f"{known}.")), path)
    origin = origins.get(path) or origins.get(setting, "settings")
    if kind == "extra_forbidden":
        return f"{path:.200} ({origin}) is no setting" + _nearest(path, list(setting_paths()))
    message = message.removeprefix("Value error, ")
    return f"{path} ({origin}): {message} (set it in the file or as {environment_name(setting)})"


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return hint or "; docs/settings.md lists all"


def effective(loaded: LoadedSettings) -> Iterator[tuple[str, object, str]]:
    """Each setting's path, its value with secrets redacted, and its source."""
    for path in setting_paths():
        value = value_at(loaded.settings, path)
        if isinstance(value, SecretStr):
            value = "**********"
        origin = loaded.origins.get(path) or next(
            (where for leaf, where in loaded.origins.items() if leaf.startswith(f"{path}.")),
            "default",
        )
        yield path, value, origin
