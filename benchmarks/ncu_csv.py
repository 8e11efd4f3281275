"""Nsight Compute's raw CSV to the counters table, against `pandas.read_csv` on the same bytes.

    python benchmarks/ncu_csv.py [--rows 100000] [--runs 5] [--chip ga100] [--keep FILE]

Generates what `ncu --csv --page raw` prints for the metrics that a counting run asks for: the tool's own lines,
the header, the row of units, one row for each kernel, every cell quoted. Then both read it in turn, each in a
fresh process that has imported what it needs before the clock starts: our reader to `.counters`, the
table that everything else uses; pandas from the header on. Wanted: at most 2 times the time of pandas.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from decode_walk import MODULES
from fresh import CLOCKS, generated, median, run, seconds
from kernelroof.profile.ncu_metrics_plan import plan

VERSION = (2025, 1)
CC = {"gv100": "7.0", "tu102": "7.5", "ga100": "8.0", "ga102": "8.6", "ad102": "8.9", "gh100": "9.0"}
BEFORE = """==PROF== Connected to process 4242 (/usr/bin/python3.12)
decode: 32 steps
==PROF== Disconnected from process 4242
"""
LINES = BEFORE.count("\n")
READ = f"""{CLOCKS}
from kernelroof.parsers.ncu import read_ncu
began = clocks()
report = read_ncu(sys.argv[1])
read = since(began)
table = report.counters
print(len(table), table["dram_bytes"].notna().sum(), *read, *since(began))
"""
PANDAS = f"""{CLOCKS}
import pandas
began = clocks()
table = pandas.read_csv(sys.argv[1], skiprows=[*range({LINES}), {LINES + 1}], low_memory=False)
print(len(table), *since(began))
"""
IDENTITY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream")
SILENT = ("_op_d", "src_fp", "src_tf", "src_int")
"""What a bf16 model leaves at 0."""
LAUNCH = ("Block Size", "Grid Size", "Device", "CC")


def _metric(name: str, rng: random.Random) -> tuple[str, Callable[[], str]]:
    """The unit that ncu prints a metric in, and what makes its cells."""
    if "pct_of_peak" in name:
        return "%", lambda: f"{rng.uniform(0, 100):.2f}"
    if name.endswith(".peak_sustained"):
        cell = str(rng.choice((64, 128, 2048, 27_648)))
        return "byte/cycle" if "bytes" in name else "inst/cycle" if "inst" in name else "", lambda: cell
    if name.endswith(".per_second"):
        return "hz", lambda: f"{rng.uniform(1.0e9, 1.9e9):.2f}"
    if name.startswith("gpu__time_duration"):
        return "ns", lambda: str(rng.randint(1_500, 300_000))
    if "waves" in name:
        return "", lambda: f"{rng.uniform(0, 9):.2f}"
    if name.startswith("launch__"):
        units = {"registers": "register/thread", "shared": "byte/block"}
        return next((u for part, u in units.items() if part in name), ""), lambda: str(rng.randint(16, 128))
    if any(part in name for part in SILENT):
        return "inst" if "inst" in name else "", lambda: "0"
    unit = "byte" if "bytes" in name else "inst" if "inst" in name else "cycle" if "cycles" in name else ""
    return unit, lambda: str(rng.randint(0, 3_000_000_000))


def generate(path: Path, rows: int, chip: str) -> tuple[int, int]:
    """Write a raw page; returns its columns and how many metrics are among them."""
    rng = random.Random(1)
    names = sorted({name for purpose in ("traffic", "work") for name in plan(chip, VERSION, purpose).metrics})
    metrics = {name: _metric(name, rng) for name in names}
    with path.open("w", newline="") as stream:
        stream.write(BEFORE)
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow([*IDENTITY, *LAUNCH, *names])
        writer.writerow(["" for _ in (*IDENTITY, *LAUNCH)] + [unit for unit, _ in metrics.values()])
        for row in range(rows):
            kernel = f"void gemm<float, {row % len(MODULES)}>(int, float const*)"
            place = ["(128, 1, 1)", f"({rng.randint(1, 512)}, 1, 1)", 0, CC[chip]]
            cells = [cell() for _, cell in metrics.values()]
            writer.writerow([row, 4242, "python3.12", "127.0.0.1", kernel, 1, 7, *place, *cells])
    return len(IDENTITY) + len(LAUNCH) + len(names), len(names)


def main() -> None:
    """Generate, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--chip", choices=CC, default="ga100", help="whose metrics are asked for")
    parser.add_argument("--keep", type=Path, help="write the table here and leave it")
    options: Any = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "generated.csv"
        columns, metrics = generated(generate, path, options.rows, options.chip)
        size = path.stat().st_size / 1e6
        print(f"table:      {options.rows:,} rows, {columns} columns ({metrics} metrics), {size:.0f} MB")
        ours, theirs = [], []
        for _ in range(options.runs):
            ours.append(run([sys.executable, "-c", READ, str(path)]))
            theirs.append(run([sys.executable, "-c", PANDAS, str(path)]))
            words = ours[-1].output.split()
            if not int(words[0]) == int(words[1]) == int(theirs[-1].output.split()[0]) == options.rows:
                sys.exit(f"{options.rows} kernels written; kernelroof: {ours[-1].output}pandas: {theirs[-1].output}")
    mine, other = median(ours), median(theirs)
    read, read_cpu, whole, whole_cpu = (seconds(ours, word) for word in range(2, 6))
    pandas, pandas_cpu = (seconds(theirs, word) for word in (1, 2))
    print(f"kernelroof: {read:.2f} s reading, {whole:.2f} s with the counters table (CPU {whole_cpu:.2f} s)")
    print(f"            process {mine.wall_s:.2f} s, peak {mine.peak_mb:.0f} MB")
    print(f"pandas:     {pandas:.2f} s reading (CPU {pandas_cpu:.2f} s)")
    print(f"            process {other.wall_s:.2f} s, peak {other.peak_mb:.0f} MB")
    print(f"ratio:      {whole / pandas:.2f} with the counters table, CPU {whole_cpu / pandas_cpu:.2f}")
    print("            (wanted: at most 2)")
    print(f"            {read / pandas:.2f} reading alone, CPU {read_cpu / pandas_cpu:.2f}")


if __name__ == "__main__":
    main()
