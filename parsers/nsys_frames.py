"""Arrays of events to tables: the join of work, calls and ranges, with dtypes and nulls."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.parsers.nsys_attribution import (
    NO_END,
    cover,
    cover_of_ranges,
    launching_calls,
    pid_of,
    process_of,
    tid_of,
)
from kernelroof.parsers.nsys_events import Calls, Ranges, Work
from kernelroof.parsers.nsys_paths import Paths, locate
from kernelroof.parsers.nsys_schema import NULL, Ints
from kernelroof.parsers.schema import LAUNCHES, conform

NO_CALL = "launch call not recorded"
NO_RANGE = "no range open around the launch"


def integers(values: Ints, null: npt.NDArray[np.bool_] | None = None) -> Any:
    """Nullable integers; null where `null` says so, by default where the value is `NULL`."""
    mask = np.asarray(values == NULL if null is None else null, bool)
    return pd.arrays.IntegerArray(np.where(mask, 0, values).astype(np.int64), mask)


def words(values: npt.NDArray[np.object_]) -> Any:
    """Nullable texts."""
    return pd.array(values, dtype="string")


def work_frame(work: Work, calls: Calls, ranges: Ranges, origin: int) -> tuple[pd.DataFrame, Paths]:
    """Every piece of GPU work with the call that launched it and the ranges around that call.

    Returns the table, and the paths that its column `path` counts.
    """
    owner, owned = process_of(work.global_pid), process_of(calls.thread)
    call = launching_calls(owner, work.correlation, owned, calls.correlation, calls.start)
    found = cover(calls.thread, calls.start, ranges.table)
    paths, located = locate(found, ranges.names)
    # The last entry stands for work without a call: no thread, no ranges, the empty path.
    group = np.append(found.group, len(located.path))[call]
    path = np.append(located.path, 0)[group]
    launch = np.append(calls.start, NULL)[call]
    reason = np.full(len(call), None, object)
    reason[path == 0] = NO_RANGE
    reason[call < 0] = NO_CALL
    number = {int(d): f"cuda:{d}" if d >= 0 else "cuda" for d in pd.unique(work.device)}
    columns = {
        "kind": words(work.kind),
        "event": integers(work.event),
        "process": integers(pid_of(work.global_pid)),
        "thread": integers(tid_of(np.append(calls.thread, NULL)[call])),
        "device": words(pd.Series(work.device).map(number).to_numpy(object)),
        "stream": integers(work.stream),
        "start_ns": integers(work.start - origin),
        "time_ns": integers(work.end - work.start),
        "launch_ns": integers(launch - origin, launch == NULL),
        "correlation": integers(work.correlation),
        "call": integers(call, call < 0),
        "graph_node": integers(work.graph_node),
        "name": words(work.name),
        "grid": words(work.grid),
        "block": words(work.block),
        "shared_bytes": integers(work.shared_bytes),
        "bytes": integers(work.bytes),
        **_place(paths, path),
        **{
            name: integers(rows, rows < 0)
            for name, rows in (
                ("phase_range", np.append(located.phase_range, -1)[group]),
                ("step_range", np.append(located.step_range, -1)[group]),
            )
        },
        "path": integers(path),
        "reason": words(reason),
    }
    return pd.DataFrame(columns), paths


def launch_table(work: pd.DataFrame) -> pd.DataFrame:
    """The kernels of a work table as LAUNCHES, in order of execution.

    `ordinal` counts a process's launches of one phase and step in the order they were launched.
    """
    kernels = work[work["kind"] == "kernel"]
    order = kernels["launch_ns"].fillna(kernels["start_ns"]).astype("int64")
    by_launch = kernels.assign(order=order).sort_values(["order", "start_ns"], kind="stable")
    keys = ["process", "phase", "step"]
    ordinal = by_launch.groupby(keys, dropna=False, sort=False).cumcount()
    kernels = kernels.assign(kernel=kernels["name"], op=None, ordinal=ordinal, time_source="nsys").sort_values(
        "start_ns", kind="stable"
    )
    return conform(kernels.reset_index(drop=True), LAUNCHES, "launches")


def call_frame(calls: Calls, origin: int) -> pd.DataFrame:
    """The `calls` table of `Nsys`."""
    table: pd.DataFrame = pd.DataFrame(
        {
            "name": words(np.array([*calls.names, None], object)[calls.name]),
            "process": integers(pid_of(calls.thread)),
            "thread": integers(tid_of(calls.thread)),
            "start_ns": integers(calls.start - origin),
            "end_ns": integers(calls.end - origin),
            "correlation": integers(calls.correlation),
            "waits": calls.waits,
        }
    )
    return table


def range_frame(ranges: Ranges, origin: int) -> pd.DataFrame:
    """The `ranges` table of `Nsys`; a range's path ends with its own name."""
    table = ranges.table
    paths, located = locate(cover_of_ranges(table), ranges.names)
    open_end = table.end == NO_END
    frame: pd.DataFrame = pd.DataFrame(
        {
            "name": words(np.array([*ranges.names.names, None], object)[ranges.names.code]),
            "domain": words(ranges.domain),
            "kind": words(np.where(table.process_wide, "start/end", "push/pop").astype(object)),
            "process": integers(pid_of(table.thread)),
            "thread": integers(tid_of(table.thread)),
            "start_ns": integers(table.start - origin),
            "end_ns": integers(np.where(open_end, 0, table.end) - origin, open_end),
            **_place(paths, located.path),
        }
    ).rename(columns={"ranges": "path"})
    return frame


def unattributed_frame(work: pd.DataFrame) -> pd.DataFrame:
    """Kernels under no range, by reason: reason, kernels, time_ns."""
    lost = work[(work["kind"] == "kernel") & work["reason"].notna()]
    groups = lost.groupby("reason", sort=True)["time_ns"]
    table: pd.DataFrame = (
        groups.agg(kernels="size", time_ns="sum").reset_index().astype({"kernels": "Int64", "time_ns": "Int64"})
    )
    return table


def _place(paths: Paths, path: Ints) -> dict[str, Any]:
    """Phase, step, module and path as columns."""
    step, text = paths.step[path], paths.path[path]
    text[path == 0] = None
    return {
        "phase": words(paths.phase[path]),
        "step": integers(step, step < 0),
        "module": words(paths.module[path]),
        "ranges": words(text),
    }
