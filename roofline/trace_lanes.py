"""Launches sorted into lanes in which nothing overlaps but what is nested, each with its placed row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.roofline.place import numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Lane(NamedTuple):
    """A CUDA stream or a CPU thread: one entry per launch, in order of start, an enclosing op before those inside."""

    name: str
    nested: bool
    """whether its ops enclose one another: on a CPU"""
    launch: NDArray[np.int64]
    """position in the table of launches"""
    row: NDArray[np.int64]
    """position in the table of kernels of the row that it belongs to; -1 where there is none"""
    main: NDArray[np.bool_]
    """whether the row's figures are of this launch, with all that is inside it"""
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    outermost: NDArray[np.bool_]
    """whether no other op of the lane encloses it"""


def lanes(launches: pd.DataFrame, kernels: pd.DataFrame) -> list[Lane]:
    """The lanes of a recording.

    Args:
        launches: launches.csv. On a device `time_ns` is a launch's length; on a CPU it is without ops inside.
        kernels: kernels.csv: on a device one row a launch, on a CPU one row an op with what is inside it (`group`).
    """
    timed = np.flatnonzero(launches["start_ns"].notna().to_numpy(bool))
    if not len(timed):
        return []
    on_device = launches["stream"].notna().to_numpy(bool)
    row = np.full(len(launches), -1, dtype=np.int64)
    row[on_device] = _by_ordinal(launches[on_device], kernels)
    row[~on_device] = _by_event(launches[~on_device], kernels)
    start_ns = launches["start_ns"].fillna(0).to_numpy(np.int64)
    time_ns = launches["time_ns"].to_numpy(np.int64)
    several = launches["device"].nunique() > 1
    keys = ["device", "stream", "thread"]
    where = launches[keys].assign(thread=launches["thread"].mask(on_device))
    out: list[Lane] = []
    found: dict[Any, Any] = dict(where.iloc[timed].groupby(keys, sort=True, dropna=False).indices)
    for (device, stream, thread), places in found.items():
        own = timed[places]
        # Of ops that start together the enclosing one stands first already; self times don't tell which it is.
        longest = -time_ns[own] if pd.notna(stream) else np.zeros(len(own), np.int64)
        own = own[np.lexsort((own, longest, start_ns[own]))]
        name = f"stream {stream}" if pd.notna(stream) else f"thread {thread}" if pd.notna(thread) else "CPU"
        name = f"{device} {name}" if several else name
        if pd.isna(stream):
            out.append(_nested(name, own, row, launches, kernels))
            continue
        parts = _apart(start_ns[own], start_ns[own] + time_ns[own])
        for number in range(int(parts.max()) + 1):
            mine = own[parts == number]
            begin = start_ns[mine]
            title = name if not number else f"{name} ({number + 1}, at the same time)"
            all_true = np.ones(len(mine), dtype=bool)
            out.append(Lane(title, False, mine, row[mine], row[mine] >= 0, begin, begin + time_ns[mine], all_true))
    return out


def _nested(
    name: str, own: NDArray[np.int64], row: NDArray[np.int64], launches: pd.DataFrame, kernels: pd.DataFrame
) -> Lane:
    start = launches["start_ns"].to_numpy(np.int64, na_value=0)[own]
    end, outermost = enclosing_ends(start, launches["time_ns"].to_numpy(np.int64)[own])
    mine = row[own].copy()
    events = launches["event"].to_numpy(np.int64)[own]
    groups = kernels["group"].to_numpy(np.float64, na_value=np.nan) if len(kernels) else np.zeros(0)
    main = np.zeros(len(own), dtype=bool)
    known = mine >= 0
    main[known] = groups[mine[known]] == events[known]
    # What comes after an op and not inside it has no row.
    ends_of = np.full(len(kernels) + 1, -1, dtype=np.int64)
    ends_of[mine[main]] = end[main]
    mine[known & ~main & (start >= ends_of[mine])] = -1
    return Lane(name, True, own, mine, main, start, end, outermost)


def enclosing_ends(start: NDArray[np.int64], own: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Ends of nested ops from their starts (in order) and self times, and whether nothing encloses them.

    An op with time of its own left when the next one starts encloses it, and goes on when that one has ended.
    """
    ends, outermost = start.copy(), np.ones(len(start), dtype=bool)
    opened: list[list[int]] = []  # place, self time left
    now = 0
    for place, (begins, length) in enumerate(zip(start.tolist(), own.tolist(), strict=True)):
        while opened and now + opened[-1][1] <= begins:
            done, left = opened.pop()
            now += left
            ends[done] = now
        if opened:
            opened[-1][1] -= begins - now
        outermost[place] = not opened
        now = begins
        opened.append([place, length])
    while opened:
        done, left = opened.pop()
        now += left
        ends[done] = now
    return ends, outermost


def _apart(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each launch of a stream the first part of it that is free; all 0 where none overlap."""
    out = np.zeros(len(start), dtype=np.int64)
    if not (start[1:] < np.maximum.accumulate(end)[:-1]).any():
        return out
    free: list[int] = []
    for i, (begins, ends) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        part = next((p for p, at in enumerate(free) if at <= begins), len(free))
        free[part : part + 1] = [ends]
        out[i] = part
    return out


def _by_ordinal(launches: pd.DataFrame, kernels: pd.DataFrame) -> NDArray[np.int64]:
    keys = ["phase", "step", "ordinal", "kernel"]
    right = kernels[keys].assign(_at=np.arange(len(kernels))).drop_duplicates(keys)
    types = {"phase": "string", "step": "Int64", "ordinal": "Int64", "kernel": "string"}
    merged = launches[keys].astype(types).merge(right.astype(types), on=keys, how="left", validate="m:1")
    found: NDArray[np.int64] = merged["_at"].fillna(-1).to_numpy(np.int64)
    return found


def _by_event(launches: pd.DataFrame, kernels: pd.DataFrame) -> NDArray[np.int64]:
    """The op that began last, by event; whether a launch is inside it is for its times to tell."""
    groups = numbers(kernels["group"])
    known = np.flatnonzero(~np.isnan(groups))
    known = known[np.argsort(groups[known], kind="stable")]
    if not len(known):
        return np.full(len(launches), -1, dtype=np.int64)
    at = np.searchsorted(groups[known], launches["event"].to_numpy(np.float64), side="right") - 1
    found: NDArray[np.int64] = np.where(at >= 0, known[np.maximum(at, 0)], -1)
    return found
