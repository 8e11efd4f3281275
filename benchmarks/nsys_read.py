"""Nsight Systems sqlite to attributed kernel table, against the real `nsys stats` on the same file.

    python benchmarks/nsys_read.py [--nsys PATH] [--kernels 100000] [--runs 3] [--keep FILE]

Generates a recording of a model under nested ranges (phase > step > module > op: about five ranges
per kernel), then prints, from one run: seconds of `nsys stats --report nvtx_kern_sum`, seconds of a
fresh Python process that imports the reader and makes the kernel table, their ratio (wanted: 0.25 at
most) and that process's peak memory (wanted: under 500 MB).
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PID, TID = 4242, 4242
GLOBAL_PID = 2**56 + PID * 2**24
MODULES = (
    ("input_layernorm", 1),
    ("self_attn", 0),
    ("self_attn.q_proj", 1),
    ("self_attn.k_proj", 1),
    ("self_attn.v_proj", 1),
    ("self_attn.rotary", 1),
    ("self_attn.o_proj", 1),
    ("post_attention_layernorm", 1),
    ("mlp", 0),
    ("mlp.gate_proj", 1),
    ("mlp.act_fn", 1),
    ("mlp.down_proj", 1),
)
OPS = ("aten::linear", "aten::matmul", "aten::mm")
READ = """
import resource, sys, time
began = time.perf_counter()
from kernelroof.parsers.nsys_sqlite import read_nsys
imported = time.perf_counter()
nsys = read_nsys(sys.argv[1])
table = nsys.launches
print(len(table), (table["phase"] != "(unattributed)").sum(), imported - began,
      time.perf_counter() - imported, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
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


class Recording:
    """Rows of a recording while it is made; `now` is the host's clock in ns."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.gpu = 1_000_000
        self.names: dict[str, int] = {}
        self.ranges: list[tuple[int, int, int]] = []
        self.calls: list[tuple[int, int, int, int]] = []
        self.kernels: list[tuple[int, int, int, int]] = []

    def name(self, text: str) -> int:
        """Id of a string."""
        return self.names.setdefault(text, len(self.names) + 1)

    def push(self) -> int:
        """Begin a range: returns its start."""
        self.now += 400
        return self.now

    def pop(self, start: int, text: str) -> None:
        """End a range that began at `start`."""
        self.now += 300
        self.ranges.append((start, self.now, self.name(text)))

    def call(self, text: str) -> int:
        """A runtime call of 2 us; returns its correlation id."""
        self.now += 500
        correlation = len(self.calls) + 1
        self.calls.append((self.now, self.now + 2000, correlation, self.name(text)))
        self.now += 2500
        return correlation

    def kernel(self, text: str, duration: int) -> None:
        """A launch and its kernel, which runs when its stream is free."""
        correlation = self.call("cudaLaunchKernel_v7000")
        begin = max(self.gpu + 800, self.now + 3000)
        self.gpu = begin + duration
        self.kernels.append((begin, self.gpu, correlation, self.name(text)))


def _layer(rec: Recording, layer: int) -> None:
    base = f"model.layers.{layer}"
    outer = rec.push()
    for position, (module, kernels) in enumerate(MODULES):
        start = rec.push()
        for _ in range(kernels):
            ops = [rec.push() for _ in OPS]
            rec.kernel(f"void gemm<float, {position}>(int, float const*)", 2000 + 700 * position)
            for at, op in zip(reversed(ops), reversed(OPS), strict=True):
                rec.pop(at, op)
        rec.pop(rec.push(), "aten::view")
        if position % 2:
            rec.call("cudaStreamIsCapturing_v10000")
        rec.pop(start, f"{base}.{module}")
    rec.pop(outer, base)


def generate(path: Path, kernels: int) -> tuple[int, int, int]:
    """Write a recording of at least `kernels` kernels; returns kernels, ranges and runtime calls."""
    rec = Recording()
    step = 0
    while len(rec.kernels) < kernels:
        phase = rec.push()
        for k in range(1 if step == 0 else 100):
            began = rec.push()
            for layer in range(32):
                _layer(rec, layer)
            rec.pop(began, f"step{k}")
            step += 1
            if len(rec.kernels) >= kernels:
                break
        rec.pop(phase, "prefill" if step == 1 else "decode")
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


def _timed(command: list[str]) -> tuple[str, tuple[float, float]]:
    """Output of a command, and its wall and CPU seconds."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, (wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


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
        kernels, ranges, calls = generate(path, options.kernels)
        print(f"recording: {kernels:,} kernels, {ranges:,} ranges, {calls:,} runtime calls")
        print(f"           {path.stat().st_size / 1e6:.0f} MB")
        ours, reader, nsys = [], [], []
        memory = 0.0
        for _ in range(options.runs):
            done, spent = _timed([sys.executable, "-c", READ, str(path)])
            rows, attributed, _imports, seconds, peak = done.split()
            if not int(rows) == int(attributed) == kernels:
                sys.exit(f"{attributed} of {rows} kernels were attributed, {kernels} recorded")
            ours.append(float(seconds))
            reader.append(spent)
            memory = max(memory, float(peak))
            if options.nsys:
                done, spent = _timed([options.nsys, *STATS, str(path)])
                if "NVTX Range" not in done:
                    sys.exit(f"nsys gave no table: {done[-500:]}")
                nsys.append(spent)
    read = statistics.median(ours)
    wall, cpu = (statistics.median(times) for times in zip(*reader, strict=True))
    print(f"kernelroof: {read:.2f} s to read and attribute; process {wall:.2f} s, CPU {cpu:.2f} s")
    print(f"            peak {memory:.0f} MB (wanted: under 500)")
    if not nsys:
        print("nsys stats: not found; name it with --nsys")
        return
    their_wall, their_cpu = (statistics.median(times) for times in zip(*nsys, strict=True))
    print(f"nsys stats: process {their_wall:.2f} s, CPU {their_cpu:.2f} s (nvtx_kern_sum)")
    print(f"ratio:      {read / their_wall:.3f} reading, {wall / their_wall:.3f} process, {cpu / their_cpu:.3f} CPU")
    print("            (wanted: at most 0.25)")


if __name__ == "__main__":
    main()
