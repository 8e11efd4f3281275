"""One forward on the recording's own clock: which kernel ran when, and where none did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from kernelroof.roofline.place import numbers


def median_step(kernels: pd.DataFrame, phase: str) -> int | None:
    """The step of a phase that took the middle time of all, idle time included; None where no step is known."""
    rows = kernels[(kernels["phase"] == phase) & kernels["step"].notna()]
    if rows.empty:
        return None
    times = numbers(rows["time_ns"])
    if "idle_before_ns" in rows:
        times = times + np.nan_to_num(numbers(rows["idle_before_ns"]))
    each = pd.Series(times * numbers(rows["count"]), index=rows["step"].astype("int64"))
    sums = each.groupby(level=0).sum().sort_values(kind="stable")
    return int(sums.index[(len(sums) - 1) // 2])


def step_timeline(
    launches: pd.DataFrame, kernels: pd.DataFrame, phase: str, step: int | None = None
) -> dict[str, Any] | None:
    """One step of a phase for a timeline, on the clock of the recording.

    A CPU's op encloses the ops that it calls, and its `time_ns` is without theirs: it is drawn in the stretches in
    which none of them ran, so that no two boxes of a lane overlap and their lengths add up to the busy time.

    Args:
        launches: launches.csv: `phase`, `step`, `ordinal`, `start_ns`, `time_ns`, `thread`, `stream`, `device`.
        kernels: the placed rows of that phase. On a device a row is a launch, found by its ordinal; on a CPU it is
            an op with all that ran inside it, found by the op's event.
        step: default the median one.

    Returns:
        `step`, `length_ns` (from the first start to the last end), `notes`, and one entry per box in `start_ns`
        (from the first start), `time_ns`, `row` (position in `kernels`; -1 for what has no row), `lane`. None where
        nothing of the phase has a start.
    """
    chosen = median_step(kernels, phase) if step is None else step
    rows = launches[(launches["phase"] == phase) & launches["start_ns"].notna()]
    if chosen is not None:
        rows = rows[rows["step"] == chosen]
    if rows.empty:
        return None
    row_of = _rows_of(rows, kernels, chosen)
    first = int(rows["start_ns"].min())
    found: dict[str, Any] = {"step": chosen, "notes": [], "start_ns": [], "time_ns": [], "row": [], "lane": []}
    for lane, group in rows.assign(_lane=_lanes(rows), _row=row_of).groupby("_lane", sort=True):
        # Of ops that start together the enclosing one stands first already; self times don't tell which it is.
        group = group.sort_values("start_ns", kind="stable")
        own = group["_row"].tolist()
        on_device = group["stream"].notna().any()
        starts, times = group["start_ns"].to_numpy(np.int64), group["time_ns"].to_numpy(np.int64)
        boxes = _as_recorded(starts, times) if on_device else _flattened(starts, times)
        for i, start, length in boxes:
            found["start_ns"].append(start - first)
            found["time_ns"].append(length)
            found["row"].append(own[i])
            found["lane"].append(str(lane))
    found["length_ns"] = max(s + t for s, t in zip(found["start_ns"], found["time_ns"], strict=True))
    if not rows["stream"].notna().any():
        found["notes"].append("Times are as recorded, with the profiler's own cost in them.")
    return found


def _rows_of(rows: pd.DataFrame, kernels: pd.DataFrame, step: int | None) -> list[int]:
    """Position in `kernels` of the row that each launch of a step belongs to; -1 where there is none."""
    table = kernels.reset_index(drop=True)
    if step is not None:
        table = table[(table["step"] == step).fillna(False)]
    if rows["stream"].notna().any() or table["group"].isna().all():
        named = {(o, k): i for i, o, k in zip(table.index, table["ordinal"], table["kernel"], strict=True)}
        return [named.get(key, -1) for key in zip(rows["ordinal"], rows["kernel"], strict=True)]
    known = table[table["group"].notna()].sort_values("group")
    groups = known["group"].to_numpy(np.int64)
    last = np.searchsorted(groups, rows["event"].to_numpy(np.int64), side="right") - 1
    index = known.index.to_numpy()
    return [int(index[i]) if i >= 0 else -1 for i in last]


def _lanes(rows: pd.DataFrame) -> list[str]:
    """stream 7, or thread 1234; with the device in front where there are several."""
    many = rows["device"].nunique() > 1
    lanes = []
    for device, stream, thread in zip(rows["device"], rows["stream"], rows["thread"], strict=True):
        where = f"stream {stream}" if pd.notna(stream) else f"thread {thread}" if pd.notna(thread) else "CPU"
        lanes.append(f"{device} {where}" if many else where)
    return lanes


def _as_recorded(starts: Any, times: Any) -> list[tuple[int, int, int]]:
    return [(i, int(s), int(t)) for i, (s, t) in enumerate(zip(starts, times, strict=True))]


def _flattened(starts: Any, self_times: Any) -> list[tuple[int, int, int]]:
    """Boxes (row, start, length) of ops in order of their start, each without the stretches of those inside it.

    Only self times are known, not ends: an op with time left when the next one starts encloses it, and goes on
    when that one has ended.
    """
    boxes: list[tuple[int, int, int]] = []
    open_ops: list[list[int]] = []  # row, self time left
    now = 0

    def run_until(limit: int | None) -> None:
        nonlocal now
        while open_ops and (limit is None or now < limit):
            row, left = open_ops[-1]
            length = left if limit is None else min(left, limit - now)
            if length:
                boxes.append((row, now, length))
            now += length
            open_ops[-1][1] -= length
            if open_ops[-1][1] == 0:
                open_ops.pop()

    for row, (start, own) in enumerate(zip(starts, self_times, strict=True)):
        run_until(int(start))
        now = max(now, int(start)) if open_ops else int(start)
        open_ops.append([row, int(own)])
    run_until(None)
    return boxes
