"""What to say of a file of the checkpoint that can't be read."""

from pathlib import Path

from utterd.errors import ConfigurationError


def read_fault(path: Path, error: OSError) -> ConfigurationError:
    """Explain a failed file call."""
    if isinstance(error, FileNotFoundError):
        return ConfigurationError(
            f"{path} is missing: name the directory that holds it, as it was released"
        )
    return ConfigurationError(
        f"{path} can't be read ({error.strerror or error}): check the file and its permissions"
    )
