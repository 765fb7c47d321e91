"""What the kernel tells of a process."""

import os
from pathlib import Path


def processor_s(pid: int) -> float:
    """Seconds of processor time that all threads of a process have used, without its children."""
    # The command's name stands in brackets and may hold spaces; proc(5) counts from there.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Resident memory, its shared pages divided among the processes that share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "Pss":
            return int(value.removesuffix("kB")) * 1024 / 1e6
    raise RuntimeError(f"the kernel tells no Pss of process {pid}")
