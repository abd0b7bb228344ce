"""This machine's figures: cores, memory, disks, networks, and its busiest programs."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import psutil

PROGRAMS_MAX = 20
EVERY_S = 1.0


class Figure(msgspec.Struct, omit_defaults=True):
    """One message: kind, name and figures; percentages are of one core, rates per second."""

    kind: str
    name: str
    percent: float | None = None
    used_bytes: int | None = None
    in_bytes_s: int | None = None
    out_bytes_s: int | None = None


class Machine:
    """Reads the figures; rates cover the time since the previous read."""

    def __init__(self) -> None:
        self._networks: dict[str, tuple[int, int]] = {}
        self._read_at = time.monotonic()

    def read(self) -> list[Figure]:
        """Read all figures that the system provides."""
        now = time.monotonic()
        elapsed_s, self._read_at = max(now - self._read_at, 1e-3), now
        return [
            *_cores(),
            *_memory(),
            *self._network_rates(elapsed_s),
            *_programs(),
        ]

    def _network_rates(self, elapsed_s: float) -> Iterator[Figure]:
        for name, counted in psutil.net_io_counters(pernic=True).items():
            come, gone = counted.bytes_recv, counted.bytes_sent
            before = self._networks.get(name, (come, gone))
            self._networks[name] = (come, gone)
            yield Figure(
                "network",
                name,
                in_bytes_s=round(max(0, come - before[0]) / elapsed_s),
                out_bytes_s=round(max(0, gone - before[1]) / elapsed_s),
            )


def _cores() -> Iterator[Figure]:
    for number, percent in enumerate(psutil.cpu_percent(percpu=True)):
        yield Figure("core", f"core {number}", percent=percent)


def _memory() -> Iterator[Figure]:
    memory, swap, disk = psutil.virtual_memory(), psutil.swap_memory(), psutil.disk_usage("/")
    yield Figure("memory", "memory", percent=memory.percent, used_bytes=memory.used)
    yield Figure("memory", "swap", percent=swap.percent, used_bytes=swap.used)
    yield Figure("disk", "/", percent=disk.percent, used_bytes=disk.used)


def _programs() -> list[Figure]:
    """Return the busiest programs, summed up by name."""
    by_name: dict[str, Figure] = {}
    for program in psutil.process_iter(["name", "cpu_percent", "memory_info"]):
        found = program.info
        name, memory = found["name"] or "(unnamed)", found["memory_info"]
        figure = by_name.setdefault(name, Figure("program", name, percent=0.0, used_bytes=0))
        figure.percent = round((figure.percent or 0.0) + (found["cpu_percent"] or 0.0), 1)
        figure.used_bytes = (figure.used_bytes or 0) + (memory.rss if memory else 0)
    busiest = sorted(by_name.values(), key=lambda figure: figure.percent or 0.0, reverse=True)
    return busiest[:PROGRAMS_MAX]
