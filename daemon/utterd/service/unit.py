"""Writes the systemd unit of a host.

The units in `systemd/` are made by this for an installation in /opt/utterd:

    python -m utterd.service.unit systemd
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

DEFAULT_EXECUTABLE = Path("/opt/utterd/bin/utterd")
CONFIGURATION = Path("/etc/utterd")

SECRETS = ("broker__url", "store__access_key_id", "store__secret_access_key")
"""The credentials that a daemon usually needs, by the names of their files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What differs between the units of two hosts, or of two instances.

    Attributes:
        executable: the installed `utterd` command.
        is_template: whether one unit serves several instances, `utterd@NAME.service`.
        secrets: names of credentials, each a file in the folder of secrets.
        encrypted: names of credentials, each a file in the folder of encrypted ones.
        configuration: the folder of settings and secrets.
    """

    executable: Path = DEFAULT_EXECUTABLE
    is_template: bool = False
    secrets: Sequence[str] = SECRETS
    encrypted: Sequence[str] = ()
    configuration: Path = CONFIGURATION

    @property
    def file_name(self) -> str:
        return "utterd@.service" if self.is_template else "utterd.service"

    @property
    def config(self) -> Path:
        return self.configuration / ("%i.toml" if self.is_template else "utterd.toml")

    @property
    def secrets_folder(self) -> Path:
        """Where the files of secrets are."""
        return self.configuration / ("credentials.%i" if self.is_template else "credentials")

    @property
    def encrypted_folder(self) -> Path:
        """Where the files are that `systemd-creds encrypt` made."""
        return self.secrets_folder.with_name(f"{self.secrets_folder.name}.encrypted")

    def render(self) -> str:
        """The unit file."""
        template = files("utterd.service").joinpath("utterd.service.in").read_text("utf-8")
        return Template(template).substitute(
            name="utterd@NAME" if self.is_template else "utterd",
            description="Speech synthesis jobs" + (" (%i)" if self.is_template else ""),
            executable=self.executable,
            config=self.config,
            credentials="\n".join(self._credentials())
            or "# No secret was found when this was written: every one needs a line.",
            # Beside that of utterd.service: inside a dynamic user's, systemd can make none.
            folder="utterd-%i" if self.is_template else "utterd",
        )

    def _credentials(self) -> Iterator[str]:
        for secret in self.secrets:
            yield f"LoadCredential={secret}:{self.secrets_folder / secret}"
        for secret in self.encrypted:
            yield f"LoadCredentialEncrypted={secret}:{self.encrypted_folder / secret}"


def main(directory: Path) -> None:
    for unit in (Unit(), Unit(is_template=True)):
        (directory / unit.file_name).write_text(unit.render(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
