"""How much memory a process has, and how it gives some back."""

import ctypes
import resource
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except OSError:
        return 0
    return int(fields[1]) * resource.getpagesize()


def return_freed_memory() -> None:
    """Give what was freed back to the system, where the C library can: glibc keeps much of it.

    Worth its time, some milliseconds, after a large temporary use such as the load of a model.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
