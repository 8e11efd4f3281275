"""What an nsys recording adds up to: per range, per phase, per step on the device's own time.

Sums and unions are per process and device: work of one GPU that overlaps (several streams) counts
once in `busy_ns` and as often as it ran in `sum_ns`; `overlap_ns` is the difference. Copies, memsets
and graphs recorded as a whole are GPU work like kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from kernelroof.parsers.intervals import Intervals, Ints, before, merge, union_lengths
from kernelroof.parsers.nsys_sqlite import Nsys

_UNKNOWN = int(np.iinfo(np.int64).min)


def path_sums(nsys: Nsys) -> pd.DataFrame:
    """GPU work per path of ranges, each path with everything launched under it, and in total.

    Columns: process, device, path ("" is the total, attributed or not), kernels, launches (a graph
    launch is one), kernel_ns, sum_ns, busy_ns, overlap_ns. Ranges of one path count together.
    """
    work = _work(nsys)
    current = work["path"].to_numpy(np.int64)
    row = np.arange(len(work))
    rows, paths = [row], [np.zeros(len(row), np.int64)]
    while len(row := row[current[row] > 0]):
        rows.append(row)
        paths.append(current[row])
        current[row] = nsys.paths.parent[current[row]]
    members = work.iloc[np.concatenate(rows)].assign(path=np.concatenate(paths))
    sums = _sums(members, ["process", "device", "path"])
    sums["path"] = pd.array(nsys.paths.path[sums["path"].to_numpy(np.int64)], dtype="string")
    return sums


def phase_sums(nsys: Nsys) -> pd.DataFrame:
    """The same per phase, "(unattributed)" among them: process, device, phase, kernels, ..."""
    return _sums(_work(nsys), ["process", "device", "phase"])


def step_windows(nsys: Nsys) -> pd.DataFrame:
    """Each step's time on the device, one row per process, device and step range that launched work.

    Step k lasts from the end of step k-1's kernels to the end of its own (the latest end of a kernel
    launched in it); a phase without step ranges is one window. The first window begins with its range,
    or when the work launched before it ends. Windows tile the time from there. The device is idle
    where no work of this process runs: `latency_ns` after the next piece of work was launched;
    before, `sync_ns` while the thread that launches it waits for the GPU and `launch_wait_ns` else;
    `unknown_ns` where the next launch was not recorded. These four add up to `idle_ns`.

    Columns: process, device, phase, step, range (row of `Nsys.ranges`), start_ns, end_ns, length_ns,
    kernels, launches (of the step, wherever they ran), sum_ns, busy_ns, overlap_ns (of all work inside
    the window), idle_ns, launch_wait_ns, latency_ns, sync_ns, unknown_ns.
    """
    work = _work(nsys)
    work["window"] = work["step_range"].fillna(work["phase_range"]).fillna(-1).astype("int64")
    stepped = set(work.loc[work["step_range"].notna(), "phase_range"].dropna())
    work.loc[work["window"].isin(stepped) & work["step_range"].isna(), "window"] = -1
    begin = nsys.raw_ranges.table.start - nsys.origin_ns
    waits = nsys.calls[nsys.calls["waits"]]
    parts = []
    for _, own in work.groupby(["process", "device"], dropna=False, sort=True):
        if (own["window"] >= 0).any():
            same = (waits["process"] == own["process"].iloc[0]).fillna(False)
            part = _windows(own, begin, waits[same])
            parts.append(part.assign(process=own["process"].iloc[0], device=own["device"].iloc[0]))
    columns = ["process", "device", *_WINDOW_COLUMNS]
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    text = {"device": "string", "phase": "string"}
    table: pd.DataFrame = frame[columns].astype({name: text.get(name, "Int64") for name in columns})
    return table


_WINDOW_COLUMNS = (
    *("phase", "step", "range", "start_ns", "end_ns", "length_ns", "kernels", "launches"),
    *("sum_ns", "busy_ns", "overlap_ns", "idle_ns", "launch_wait_ns", "latency_ns", "sync_ns", "unknown_ns"),
)


def _windows(work: pd.DataFrame, range_start: Ints, waits: pd.DataFrame) -> pd.DataFrame:
    """The windows of one process on one device."""
    windows = np.unique(work.loc[work["window"] >= 0, "window"].to_numpy(np.int64))
    windows = windows[np.lexsort((windows, range_start[windows]))]
    starts, ends = work["start_ns"].to_numpy(np.int64), work["end_ns"].to_numpy(np.int64)
    launches = work["launch_ns"].fillna(_UNKNOWN).to_numpy(np.int64)

    first = int(range_start[windows[0]])
    earlier = np.where(launches == _UNKNOWN, starts, launches) < first
    first = max(first, int(ends[earlier].max(initial=first)))
    kernels = work[(work["kind"] == "kernel") & (work["window"] >= 0)]
    by_window = kernels.groupby("window")
    last = by_window["end_ns"].max().reindex(windows).fillna(first).to_numpy(np.int64)
    end = np.maximum(np.maximum.accumulate(last), first)
    start = np.append(first, end[:-1])

    busy = merge(starts, ends)
    busy_ns = before(*busy, end) - before(*busy, start)
    sum_ns = before(starts, ends, end) - before(starts, ends, start)
    threads = work["thread"].fillna(-1).to_numpy(np.int64)
    idle = _idle(busy, start, end, starts, launches, threads, waits)
    one = work[work["window"] >= 0].drop_duplicates("window").set_index("window").loc[windows]
    length = end - start
    table: pd.DataFrame = pd.DataFrame(
        {
            "phase": one["phase"].to_numpy(object),
            "step": one["step"].array,
            "range": windows,
            "start_ns": start,
            "end_ns": end,
            "length_ns": length,
            "kernels": by_window.size().reindex(windows, fill_value=0).to_numpy(),
            "launches": by_window["launch_key"].nunique().reindex(windows, fill_value=0).to_numpy(),
            "sum_ns": sum_ns,
            "busy_ns": busy_ns,
            "overlap_ns": sum_ns - busy_ns,
            "idle_ns": length - busy_ns,
            **idle,
        }
    )
    return table


def _idle(
    busy: Intervals, start: Ints, end: Ints, work_start: Ints, launch: Ints, thread: Ints, waits: pd.DataFrame
) -> dict[str, Ints]:
    """The idle time of each window by what the next piece of work was waiting for."""
    gap_start = np.append(start[0], busy.end).clip(start[0], end[-1])
    gap_end = np.append(busy.start, end[-1])
    order = np.lexsort((launch, work_start))
    at = np.searchsorted(work_start[order], gap_end)
    following = order[np.minimum(at, len(order) - 1)]
    gap_end = gap_end.clip(gap_start, end[-1])
    known = (at < len(order)) & (launch[following] != _UNKNOWN)
    launched = np.clip(np.where(known, launch[following], gap_end), gap_start, gap_end)

    def within(intervals: Intervals) -> Ints:
        return before(*intervals, end) - before(*intervals, start)

    synced = np.zeros(len(end), np.int64)
    for number, calls in waits.groupby("thread"):
        own = known & (thread[following] == number)
        host = Intervals(gap_start[own], launched[own])
        blocked = merge(calls["start_ns"].to_numpy(np.int64), calls["end_ns"].to_numpy(np.int64))
        either = merge(np.append(host.start, blocked.start), np.append(host.end, blocked.end))
        synced += within(host) + within(blocked) - within(either)
    return {
        "launch_wait_ns": within(Intervals(gap_start[known], launched[known])) - synced,
        "latency_ns": within(Intervals(launched[known], gap_end[known])),
        "sync_ns": synced,
        "unknown_ns": within(Intervals(gap_start[~known], gap_end[~known])),
    }


def _work(nsys: Nsys) -> pd.DataFrame:
    """GPU work with its end and a number for the launch that it came from."""
    work = nsys.work.assign(end_ns=nsys.work["start_ns"] + nsys.work["time_ns"])
    launch = work.groupby(["process", "correlation"], sort=False).ngroup()
    own = work["correlation"].isna() | work["process"].isna()
    table: pd.DataFrame = work.assign(launch_key=np.where(own, -1 - np.arange(len(work)), launch))
    return table


def _sums(work: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Counts, sums and unions of each group of these keys."""
    grouped = work.groupby(keys, dropna=False, sort=True)
    group = np.asarray(grouped.ngroup(), np.int64)
    is_kernel = (work["kind"] == "kernel").to_numpy(bool)
    time = work["time_ns"].to_numpy(np.int64)
    frame = grouped.size().reset_index()[keys]
    size = len(frame)
    pairs = pd.DataFrame({"group": group[is_kernel], "launch": work["launch_key"].to_numpy()[is_kernel]})
    distinct = pairs.drop_duplicates()["group"].to_numpy(np.int64)
    starts, ends = work["start_ns"].to_numpy(np.int64), work["end_ns"].to_numpy(np.int64)
    columns: dict[str, Any] = {
        "kernels": np.bincount(group[is_kernel], minlength=size),
        "launches": np.bincount(distinct, minlength=size),
        "kernel_ns": _add_up(group[is_kernel], time[is_kernel], size),
        "sum_ns": _add_up(group, time, size),
        "busy_ns": union_lengths(group, starts, ends, size),
    }
    frame = frame.assign(**columns)
    frame["overlap_ns"] = frame["sum_ns"] - frame["busy_ns"]
    table: pd.DataFrame = frame.astype(dict.fromkeys([*columns, "overlap_ns"], "Int64"))
    return table


def _add_up(group: Ints, values: Ints, size: int) -> Ints:
    """Exact sums of integers by group."""
    sums = np.zeros(size, np.int64)
    np.add.at(sums, group, values)
    return sums
