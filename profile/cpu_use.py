"""Who used the CPU while something was measured: this program, others, the hypervisor, nobody."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_STAT = Path("/proc/stat")


class _Reading(NamedTuple):
    """Seconds since some start, of the CPUs that this process may use together."""

    wall_s: float
    busy_s: float
    idle_s: float
    stolen_s: float
    own_s: float


@contextmanager
def cpu_use() -> Iterator[dict[str, float]]:
    """Fills the dict at the end, in per cent of all time of the CPUs that this process may use.

    `own_pct` (this process and its ended children), `others_pct`, `stolen_pct` (the hypervisor ran another machine),
    `idle_pct`. It stays empty where /proc/stat can't be read, and where less than a tenth of a second passed.
    """
    found: dict[str, float] = {}
    before = _read()
    try:
        yield found
    finally:
        after = _read()
        if before is not None and after is not None:
            found.update(_shares(before, after))


def _shares(before: _Reading, after: _Reading) -> dict[str, float]:
    wall, busy, idle, stolen, own = (b - a for a, b in zip(before, after, strict=True))
    total = busy + idle + stolen
    if wall < 0.1 or total <= 0:
        return {}
    # The kernel counts in hundredths of a second, and the two counts differ by a few of them.
    parts = {"own": min(own, busy), "others": max(busy - own, 0.0), "stolen": stolen, "idle": idle}
    return {f"{name}_pct": round(100 * part / total, 1) for name, part in parts.items()}


def _read() -> _Reading | None:
    try:
        lines = _STAT.read_text(encoding="ascii").splitlines()
        usable = os.sched_getaffinity(0)
        tick = os.sysconf("SC_CLK_TCK")
        rows = [line.split() for line in lines if line.startswith("cpu") and line[3:4].isdigit()]
        counts = [[int(n) for n in row[1:9]] for row in rows if int(row[0][3:]) in usable]
        # user, nice, system, idle, iowait, irq, softirq, steal
        idle, stolen = sum(c[3] + c[4] for c in counts) / tick, sum(c[7] for c in counts) / tick
        busy = sum(sum(c[:3]) + sum(c[5:7]) for c in counts) / tick
    except (OSError, AttributeError, ValueError, IndexError):
        return None
    return _Reading(time.monotonic(), busy, idle, stolen, sum(os.times()[:4])) if counts else None
