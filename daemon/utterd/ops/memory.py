"""How much memory a process has, how it gives some back, and who loses all when none is left."""

import ctypes
import resource
from contextlib import suppress
from pathlib import Path

OOM_HANDICAP = 500
"""By how many thousandths of all memory a worker seems larger when none is left."""

_MAX_OOM_SCORE = 1000


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except OSError:
        return 0
    return int(fields[1]) * resource.getpagesize()


def let_die_first(pid: int) -> None:
    """Have the kernel choose this child, not its parent, when no memory is left (proc(5)).

    A worker's end costs one attempt at what it speaks, the daemon's all that it has in hand. A
    parent that is larger by half of the memory goes first all the same: it is the one that grows.
    """
    score = Path(f"/proc/{pid}/oom_score_adj")
    with suppress(OSError):
        raised = int(score.read_text("ascii")) + OOM_HANDICAP
        score.write_text(str(min(raised, _MAX_OOM_SCORE)), "ascii")


def return_freed_memory() -> None:
    """Give what was freed back to the system, where the C library can: glibc keeps much of it.

    Worth its time, some milliseconds, after a large temporary use such as the load of a model.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
