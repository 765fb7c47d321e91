"""What to say of files of the checkpoint that can't be read or used."""

from pathlib import Path

from utterd.errors import ConfigurationError

_SHOWN_CHARACTERS = 200


def read_fault(path: Path, error: OSError) -> ConfigurationError:
    """Explain a failed file call."""
    if isinstance(error, FileNotFoundError):
        return ConfigurationError(
            f"{path} is missing: name the directory that holds it, as it was released"
        )
    return ConfigurationError(
        f"{path} can't be read ({error.strerror or error}): check its name and permissions"
    )


def shown(text: str) -> str:
    """Text of a file as a message may hold it: short, and nothing that steers a terminal."""
    beginning = text[:_SHOWN_CHARACTERS]
    return beginning if beginning.isprintable() else ascii(beginning)
