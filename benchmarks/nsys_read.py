"""Nsight Systems sqlite to attributed kernel table, against the real `nsys stats` on the same file.

    python benchmarks/nsys_read.py [--nsys PATH] [--kernels 100000] [--runs 3] [--keep FILE]

Generates a recording of a model under nested ranges (phase > step > module > op: about five ranges
per kernel), then prints, from one run: seconds of `nsys stats --report nvtx_kern_sum`, seconds of a
fresh Python process that imports the reader and makes the kernel table, their ratio (wanted: 0.25 at
most) and that process's peak memory (wanted: under 500 MB).
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from decode_walk import Walk
from fresh import CLOCKS, generated, median, run, seconds

PID, TID = 4242, 4242
GLOBAL_PID = 2**56 + PID * 2**24
READ = f"""{CLOCKS}
began = clocks()
from kernelroof.parsers.nsys_sqlite import read_nsys
imports, began = since(began), clocks()
table = read_nsys(sys.argv[1]).launches
print(len(table), (table["phase"] != "(unattributed)").sum(), *imports, *since(began))
"""
STATS = ("stats", "--report", "nvtx_kern_sum", "--format", "csv", "--output", "-")
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
  returnValue INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,
  gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
  blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,
  localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,
  sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
"""


class Recording(Walk):
    """Rows of a recording while it is made."""

    def __init__(self, kernels: int) -> None:
        super().__init__()
        self.wanted = kernels
        self.names: dict[str, int] = {}
        self.ranges: list[tuple[int, int, int]] = []
        self.calls: list[tuple[int, int, int, int]] = []
        self.kernels: list[tuple[int, int, int, int]] = []

    def name(self, text: str) -> int:
        """Id of a string."""
        return self.names.setdefault(text, len(self.names) + 1)

    def full(self) -> bool:
        return len(self.kernels) >= self.wanted

    def begun(self) -> int:
        return 0

    def ended(self, token: int, start: int, text: str) -> None:
        self.ranges.append((start, self.now, self.name(text)))

    def called(self, start: int, end: int, text: str) -> None:
        self.calls.append((start, end, self.correlation, self.name(f"{text}_v7000")))

    def ran(self, start: int, end: int, text: str) -> None:
        self.kernels.append((start, end, self.correlation, self.name(text)))


def generate(path: Path, kernels: int) -> tuple[int, int, int]:
    """Write a recording of at least `kernels` kernels; returns kernels, ranges and runtime calls."""
    rec = Recording(kernels)
    rec.walk()
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    thread = GLOBAL_PID + TID
    insert = connection.executemany
    insert("INSERT INTO StringIds VALUES (?, ?)", [(i, text) for text, i in rec.names.items()])
    insert(
        "INSERT INTO META_DATA_EXPORT VALUES (?, ?)",
        [("EXPORT_PRODUCT_VERSION", "2023.4.4.54"), ("EXPORT_SCHEMA_VERSION", "3.7.2")],
    )
    insert(
        f"INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, NULL, NULL, NULL, {thread}, NULL, ?, 0)",
        sorted(rec.ranges),
    )
    insert(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, {thread}, ?, ?, 0)", rec.calls)
    insert(
        f"""INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 7, ?, {GLOBAL_PID}, ?4, ?4, ?4,
        1, 1, 32, 64, 1, 1, 128, 1, 1, 0, 0, 0, 0, 1, 0, NULL, 0)""",
        rec.kernels,
    )
    connection.commit()
    connection.close()
    return len(rec.kernels), len(rec.ranges), len(rec.calls)


def main() -> None:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path.home() / ".cache/nsight/nsys-2023.4/bin/nsys"
    parser.add_argument("--nsys", default=str(default) if default.exists() else shutil.which("nsys"))
    parser.add_argument("--kernels", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="write the recording here and leave it")
    options: Any = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "generated.sqlite"
        kernels, ranges, calls = generated(generate, path, options.kernels)
        print(f"recording: {kernels:,} kernels, {ranges:,} ranges, {calls:,} runtime calls")
        print(f"           {path.stat().st_size / 1e6:.0f} MB")
        ours, nsys = [], []
        for _ in range(options.runs):
            ours.append(run([sys.executable, "-c", READ, str(path)]))
            rows, attributed = map(int, ours[-1].output.split()[:2])
            if not rows == attributed == kernels:
                sys.exit(f"{attributed} of {rows} kernels were attributed, {kernels} recorded")
            if options.nsys:
                nsys.append(run([options.nsys, *STATS, str(path)]))
                if "NVTX Range" not in nsys[-1].output:
                    sys.exit(f"nsys gave no table: {nsys[-1].output[-500:]}")
    mine = median(ours)
    imports, _, read, read_cpu = (seconds(ours, word) for word in range(2, 6))
    print(f"kernelroof: {imports:.2f} s importing, {read:.2f} s to read and attribute (CPU {read_cpu:.2f} s)")
    print(f"            process {mine.wall_s:.2f} s (CPU {mine.cpu_s:.2f} s), peak {mine.peak_mb:.0f} MB")
    print("            (wanted: under 500)")
    if not nsys:
        print("nsys stats: not found; name it with --nsys")
        return
    theirs = median(nsys)
    print(f"nsys stats: process {theirs.wall_s:.2f} s (CPU {theirs.cpu_s:.2f} s)")
    print(f"ratio:      {mine.wall_s / theirs.wall_s:.3f} process, CPU {mine.cpu_s / theirs.cpu_s:.3f}")
    print("            (wanted: at most 0.25)")
    print(f"            {read / theirs.wall_s:.3f} reading, CPU {read_cpu / theirs.cpu_s:.3f}")


if __name__ == "__main__":
    main()
