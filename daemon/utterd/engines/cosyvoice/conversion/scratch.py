"""Where a bundle is written before it is whole, and what to say when it can't be."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from utterd.errors import ConfigurationError

_MEBIBYTE = 1024 * 1024

# A short write has no number.
_NO_ROOM = frozenset({None, errno.ENOSPC, errno.EDQUOT})


@contextmanager
def scratch_directory(out: Path) -> Iterator[Path]:
    """A directory beside `out` that is gone at the end.

    Raises:
        ConfigurationError: instead of any `OSError` of the block, or of making the directory.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".utterd-bundle-", dir=out.parent) as directory:
            scratch = Path(directory)
            try:
                yield scratch
            except OSError as error:
                raise _unwritable(error, _last_written(scratch) or out) from error
    except OSError as error:
        raise _unwritable(error, out.parent) from error


def _last_written(directory: Path) -> Path | None:
    """A full disk does not say which file it was full for: it is the one that was last in hand."""
    written = [path for path in directory.rglob("*") if path.is_file()]
    return max(written, key=lambda path: path.stat().st_mtime_ns, default=None)


def _unwritable(error: OSError, path: Path) -> ConfigurationError:
    named = error.filename or path
    existing = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    free = shutil.disk_usage(existing).free // _MEBIBYTE
    # numpy says how many numbers it wrote, and not why it wrote no more.
    reason = error.strerror or (str(error) if free else os.strerror(errno.ENOSPC))
    room = f"{free} MiB of its disk are free. Make room, or name another place"
    advice = room if error.errno in _NO_ROOM else "name another place"
    return ConfigurationError(f"{named} can't be written ({reason}): {advice}")
