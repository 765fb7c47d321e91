"""Reads files that a person wrote: settings, secrets, a lexicon."""

import errno
import os
import stat
from pathlib import Path

MAX_BYTES = 1024 * 1024


def read_small_file(path: Path) -> bytes:
    """All that stands in a file.

    A pipe is refused: nobody may write to it, for which a daemon would wait for ever, and what was
    read once is not there at the next reload.

    Raises:
        OSError: it can't be read, is a pipe, or holds more than `MAX_BYTES`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        # Of a name with a NUL in it, which only a settings file can hold.
        raise OSError(errno.EINVAL, str(error)) from error
    with os.fdopen(descriptor, "rb") as file:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError(errno.ESPIPE, "it is a pipe")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MAX_BYTES} bytes")
    return content
