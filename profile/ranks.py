"""Which counted process is which recorded one: several runs of a program with ranks, each with pids of its own.

Ranks are told by the GPU that they use and, where several use one, by the order in which they were started.
Where that does not fit what they launched, nothing is joined: a rank never gets another rank's counters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from kernelroof.parsers.kernel_names import function_name

if TYPE_CHECKING:
    from kernelroof.parsers.nsys_sqlite import Nsys


def rank_order(rows: pd.DataFrame) -> list[int]:
    """The processes in these rows (columns process and device), by their first GPU, then by their ids."""
    known = rows.loc[rows["process"].notna(), ["process", "device"]]
    number = known["device"].astype("string").str.extract(r"(\d+)$")[0].astype("Float64").fillna(-1)
    first = known.assign(device=number).groupby("process")["device"].min().reset_index()
    return [int(p) for p in first.sort_values(["device", "process"])["process"]]


def ranks_of(nsys: Nsys) -> list[int]:
    """The recorded processes that launched kernels, in the order of their ranks."""
    return rank_order(nsys.work[nsys.work["kind"] == "kernel"])


def in_rank_order(counters: pd.DataFrame) -> pd.DataFrame:
    """Counters sorted by rank, each rank's launches in their own order, with the rank in a column `rank`.

    How the launches of ranks interleave differs from run to run; within one process the order is its own.
    """
    place = {process: rank for rank, process in enumerate(rank_order(counters))}
    out = counters.assign(rank=counters["process"].map(place).astype("Int64"))
    ordered: pd.DataFrame = out.sort_values("rank", kind="stable").reset_index(drop=True)
    return ordered


def counters_by_rank(
    nsys: Nsys, counters: pd.DataFrame | None
) -> tuple[list[tuple[int, pd.DataFrame | None]], list[str]]:
    """Each recorded process with its own counters (None: they can't be told), and why some can't be told."""
    recorded = ranks_of(nsys)
    if counters is None:
        return [(process, None) for process in recorded], []
    counted = rank_order(counters)
    if len(recorded) == 1 and len(counted) < 2:
        return [(recorded[0], counters)], []
    if len(recorded) != len(counted):
        words = f"{len(recorded)} processes launched kernels on the timeline and {len(counted)} when counted"
        return [(process, None) for process in recorded], [f"{words}: nothing tells whose the counters are"]
    out: list[tuple[int, pd.DataFrame | None]] = []
    notes = []
    for rank, (process, other) in enumerate(zip(recorded, counted, strict=True)):
        own = counters[counters["process"] == other].reset_index(drop=True)
        strange = _functions(own) - _functions(nsys.launches_of(process))
        if strange:
            notes.append(f"rank {rank} launched {min(strange)} only when counted: its counters are left out")
        out.append((process, None if strange else own))
    return out, notes


def _functions(rows: pd.DataFrame) -> set[str]:
    return {function_name(str(kernel)) for kernel in rows["kernel"].unique()}
