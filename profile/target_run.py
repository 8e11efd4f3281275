"""Another program under nsys and ncu: recorded as a whole, its kernels with most time counted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from kernelroof.parsers.ncu_errors import NoKernelsError
from kernelroof.profile import ncu, nsys
from kernelroof.profile.backends import Gpu
from kernelroof.profile.count_options import CountOptions
from kernelroof.profile.nsight_backend import TRACES, Purpose, purposes
from kernelroof.profile.ranks import in_rank_order
from kernelroof.profile.representatives import COLLECTIVES
from kernelroof.profile.tools import find_tool

if TYPE_CHECKING:
    import pandas as pd
    from kernelroof.parsers.nsys_sqlite import Nsys

COUNTED_KERNELS = 8
"""Kernels by most time that are counted where --top does not say."""
COUNTED_LAUNCHES = 400
"""At most so many launches of them, unless every kernel is to be counted."""
_PHASES = ("prefill", "decode")
_TRAFFIC = ("dram_read_bytes", "dram_write_bytes", "dram_bytes", "dram_pct", "time_ns", "sm_clock_hz", "passes",
            "dram_clock_hz", "peak_dram_byte_s")  # fmt: skip


def record_target(folder: Path, target: list[str]) -> None:
    """Record the whole program and export it; leaves timeline.nsys-rep and timeline.sqlite.

    Raises:
        ToolError, NsysError: see `kernelroof.profile.nsys`; also where no kernel was recorded.
    """
    from kernelroof.parsers.nsys_sqlite import check_recording

    tool = find_tool("nsys")
    report = nsys.record(tool, target, folder, name="timeline", capture_range=False, traces=TRACES)
    check_recording(nsys.export_sqlite(tool, report, folder / "timeline.sqlite"), need_ranges=False)


def names_to_count(recorded: Nsys, top: int) -> list[str]:
    """Function names of the kernels with most time; collectives, which can't be replayed, are left out."""
    from kernelroof.parsers.kernel_names import function_name

    launches = recorded.launches
    times = launches.groupby(launches["kernel"].map(function_name), sort=False)["time_ns"].sum()
    names = [str(n) for n in times.sort_values(ascending=False, kind="stable").index]
    return [n for n in names if not re.search(COLLECTIVES, n)][:top]


def count_target(
    folder: Path, target: list[str], recorded: Nsys, gpu: Gpu, options: CountOptions
) -> tuple[pd.DataFrame, list[str]]:
    """Count the kernels with most time, in the phases where the program has ranges of these names.

    Returns:
        the counters, one row a launch, and what a reader must know.

    Raises:
        NcuError, ToolError: see `kernelroof.profile.ncu`.
    """
    from kernelroof.parsers.ncu import read_ncu
    from kernelroof.roofline.counted import with_floor

    tool = find_tool("ncu")
    phases = [p for p in _PHASES if (recorded.launches["phase"] == p).any()]
    names = names_to_count(recorded, options.top or COUNTED_KERNELS)
    if not names:
        raise NoKernelsError(
            "the recording holds no kernels but collectives, which can't be replayed", "Count a run on one GPU."
        )
    tables, notes = [], []
    for purpose in purposes(tool, gpu, options):
        counting = counting_of(purpose, options, names, phases)
        counted = ncu.count(tool, target, folder, counting, name=f"counters-{purpose.name}")
        csv = ncu.export_counted(tool, counted, folder / f"counters-{purpose.name}.csv")
        report = read_ncu(csv, asked=purpose.metrics, own_run=True)
        passes = report.counters["launch_id"].map(counted.said.passes).astype("Int64")
        tables.append(with_floor(report.counters, report.metrics).assign(passes=passes))
        notes += [a.reason for a in report.absent]
        if counted.problem is not None:
            notes.append(f"counting ended early, what was counted is kept: {counted.problem}")
    if not options.every_kernel:
        limit = f"at most {COUNTED_LAUNCHES:,} launches of the {len(names)} kernels with most time were counted"
        notes.append(f"{limit}; --every-kernel counts all, --top N chooses how many")
    merged, words = merge_tables(tables)
    return merged, [*notes, *words]


def counting_of(purpose: Purpose, options: CountOptions, names: list[str], phases: list[str]) -> ncu.Counting:
    """What one counting run of another program collects, and of which launches."""
    safe = f"^(?!.*(?:{COLLECTIVES}))"
    chosen = "" if options.every_kernel else rf".*(?<!\w)({'|'.join(map(re.escape, names))})(?!\w)"
    return ncu.Counting(
        metrics=purpose.metrics,
        section_set=purpose.section_set,
        cache_control=purpose.cache_control,
        clock_control=options.clock_control or "none",
        nvtx_include=tuple(ncu.push_pop(p) for p in phases),
        kernel_names=safe + chosen,
        launch_count=None if options.every_kernel else COUNTED_LAUNCHES,
    )


def merge_tables(tables: list[pd.DataFrame]) -> tuple[pd.DataFrame, list[str]]:
    """One table of two runs that counted the same launches, rank by rank: traffic from the first, work from the last.

    Where the runs launched other kernels, only the last is kept, and said so.
    """
    from kernelroof.roofline.report_ceilings import peaks_at

    last = in_rank_order(tables[-1])
    if len(tables) == 1:
        return last, []
    first = in_rank_order(tables[0])
    keys = ["rank", "kernel", "grid", "block", "range"]
    same = len(first) == len(last) and first[keys].equals(last[keys])
    if not same:
        return last, [
            "the two counting runs launched other kernels: DRAM bytes are those of the run with flushed caches"
        ]
    out = peaks_at(last, first["sm_clock_hz"])
    for name in _TRAFFIC:
        out[name] = first[name].where(first[name].notna(), last[name])
    return out, []
