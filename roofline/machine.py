"""What the measurement of ceilings must know about the machine: its name, caches and free memory.

Read from Linux's own files; each function takes their folder so that tests can bring their own.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

DEFAULT_CACHE_BYTES = 64 * 2**20
"""Size taken for the last-level cache where the machine doesn't tell: larger than most, to be safe."""
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model name, or what Python knows of it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine() or "CPU"


def cache_sizes(cpus: set[int] | None = None, folder: Path = Path("/sys/devices/system/cpu")) -> dict[int, int]:
    """Level -> bytes of data cache that these CPUs (default: those this process may use) reach together.

    A cache that several CPUs share counts once; several caches of a level are summed, because threads
    on all of them use all of them. Empty where the machine tells nothing.
    """
    if cpus is None:
        cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    found: dict[tuple[int, str], int] = {}
    for cpu in sorted(cpus):
        for index in sorted((folder / f"cpu{cpu}" / "cache").glob("index[0-9]*")):
            try:
                kind = (index / "type").read_text().strip()
                level = int((index / "level").read_text())
                size = parse_size((index / "size").read_text())
                shared = (index / "shared_cpu_list").read_text().strip()
            except (OSError, ValueError):
                continue
            if kind != "Instruction" and size > 0:
                found[level, shared] = size
    sizes: dict[int, int] = {}
    for (level, _), size in found.items():
        sizes[level] = sizes.get(level, 0) + size
    return sizes


def parse_size(text: str) -> int:
    """Bytes of a size as sysfs writes it: "32768K" -> 33554432.

    Raises:
        ValueError: not such a size.
    """
    found = re.fullmatch(r"(\d+)([KMG]?)B?", text.strip())
    if not found:
        raise ValueError(f"not a cache size: {text!r}")
    return int(found.group(1)) * _UNITS[found.group(2)]


def memory_bytes(field: str = "MemTotal", meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """A field of the kernel's memory table in bytes (MemTotal, MemAvailable); None where there is none."""
    try:
        found = re.search(rf"^{field}:\s*(\d+) kB$", meminfo.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


def container_limit_bytes(cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """This container's memory limit; None without one."""
    try:
        return int((cgroup / "memory.max").read_text())
    except (OSError, ValueError):
        return None


def container_headroom_bytes(cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What is left of this container's memory limit; None without a limit.

    Page cache counts as used there, but is given back on demand.
    """
    try:
        limit, used = (int((cgroup / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):
        return None
    try:
        cached = re.search(r"^file (\d+)$", (cgroup / "memory.stat").read_text(), re.MULTILINE)
    except OSError:
        cached = None
    return max(0, limit - used + (int(cached.group(1)) if cached else 0))
