"""How much energy the processors used, where the kernel tells (Intel and AMD RAPL)."""

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

POWERCAP = Path("/sys/class/powercap")

_MICRO = 1e-6


class EnergyCollector(Collector):
    """Joules of each processor package since the daemon's start; nothing where none can be read.

    The kernel's counters wrap around after minutes to hours, so that a daemon which is scraped
    less often than that undercounts.

    Args:
        powercap: the kernel's folder.
    """

    def __init__(self, powercap: Path = POWERCAP) -> None:
        self._zones = {
            zone: last
            for zone in sorted(powercap.glob("intel-rapl:*"))
            if zone.name.count(":") == 1 and (last := _read(zone / "energy_uj")) is not None
        }
        self._joules = dict.fromkeys(self._zones, 0.0)

    @property
    def is_readable(self) -> bool:
        """Whether the kernel lets this user read at least one counter."""
        return bool(self._zones)

    def collect(self) -> Iterator[Metric]:
        if not self._zones:
            return
        family = CounterMetricFamily(
            "utterd_energy_joules",
            "Energy that the processor packages used since the start; all of the machine's work.",
            labels=("package",),
        )
        for zone, last in list(self._zones.items()):
            now = _read(zone / "energy_uj")
            if now is not None:
                wrapped = (_read(zone / "max_energy_range_uj") or 0) if now < last else 0
                self._joules[zone] += (now - last + wrapped) * _MICRO
                self._zones[zone] = now
            family.add_metric((zone.name.partition(":")[2],), self._joules[zone])
        yield family


def _read(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
