"""Placed kernels as trace events (Chrome's JSON format), which the Perfetto UI opens.

Tracks: phases, steps, and stretches in which no kernel runs; then for each lane (a CUDA stream, a CPU thread) its
modules as nested slices, its kernels, and counters of what they reach; for a GPU also the launching calls, each with
an arrow to its kernel. All positions and lengths are the recording's own, with the profiler's cost in them; figures in
a slice's arguments are those of kernels.csv, on the bare run's clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.parsers.kernel_names import shorten
from kernelroof.parsers.schema import UNATTRIBUTED
from kernelroof.roofline.place import numbers
from kernelroof.roofline.trace_lanes import Lane, lanes

if TYPE_CHECKING:
    from numpy.typing import NDArray

Event = dict[str, Any]
NOTES = {
    "clock": "positions and lengths are the recording's, with the profiler's own cost; figures in the arguments are "
    "on the bare run's clock, as in kernels.csv",
    "counters": "what placed kernels reach; 0 where no placed kernel runs",
    "CPU ops": "only self times are recorded: an op's end is where its own time and that of the ops inside are over",
}
"""What a reader of the file must know; goes into its `otherData`."""
_PID = 1
_PHASES, _STEPS, _GAPS, _FIRST = 1, 2, 3, 10
_BLOCK = 20_000
_LEAST_GAP_NS = 1_000
"""Shorter stretches without a kernel are not drawn, and a counter does not fall in them."""
_FIGURES = (
    ("time_ns", "time on the bare run's clock (µs)", 1e-3),
    ("recorded_ns", "recorded (µs)", 1e-3),
    ("ideal_ns", "at its roof (µs)", 1e-3),
    ("recoverable_ns", "recoverable (µs)", 1e-3),
    ("pct_of_roof", "of its roof (%)", 1.0),
    ("flops", "work (FLOP)", 1.0),
    ("dram_read_bytes", "read (B)", 1.0),
    ("dram_write_bytes", "written (B)", 1.0),
    ("intensity", "intensity (FLOP/B)", 1.0),
    ("attained_flop_s", "reached (GFLOP/s)", 1e-9),
    ("attained_byte_s", "reached (GB/s)", 1e-9),
    ("dram_pct", "DRAM, counted (% of peak)", 1.0),
    ("sm_pct", "SM, counted (% of peak)", 1.0),
)
_WORDS = (
    *(("module", "module"), ("kind", "kind of module"), ("op", "op"), ("shapes", "operands"), ("dtype", "type")),
    *(("bound", "bound"), ("reason", "reason"), ("advice", "what to do"), ("time_source", "source of the time")),
    *(("flops_source", "source of the FLOPs"), ("bytes_source", "source of the bytes")),
)


class _Boxes(NamedTuple):
    start: NDArray[np.int64]
    end: NDArray[np.int64]


def trace_events(launches: pd.DataFrame, kernels: pd.DataFrame) -> Iterator[Event]:
    """All events of a run, one track after the other, each track in order of time; `ts` and `dur` in µs.

    Args:
        launches: launches.csv.
        kernels: kernels.csv, with the columns `role` and `advice` where known.
    """
    found = lanes(launches, kernels)
    if not found:
        return
    yield _named("process_name", 0, "kernelroof: placed kernels, on the recording's clock")
    yield from _track(_PHASES, "phases")
    yield from _track(_STEPS, "steps")
    yield from _track(_GAPS, "no kernel running")
    yield from _phases_and_steps(found, launches)
    yield from _gaps(found)
    tid = _FIRST
    for lane in found:
        modules, own = tid, tid + 1
        yield from _track(modules, f"{lane.name}: modules")
        yield from _module_slices(lane, launches, modules)
        yield from _track(own, f"{lane.name}: kernels")
        yield from _kernel_slices(lane, launches, kernels, own)
        yield from _counters(lane, kernels, own)
        tid += 2
    yield from _flows(found, launches, tid)


def _track(tid: int, name: str) -> Iterator[Event]:
    yield _named("thread_name", tid, name)
    yield {"ph": "M", "pid": _PID, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _named(what: str, tid: int, name: str) -> Event:
    return {"ph": "M", "pid": _PID, "tid": tid, "name": what, "args": {"name": name}}


def _slice(tid: int, name: str, start: int, end: int, category: str, args: dict[str, Any] | None = None) -> Event:
    event = {"ph": "X", "pid": _PID, "tid": tid, "name": name, "cat": category, "ts": start / 1e3}
    return {**event, "dur": (end - start) / 1e3, "args": args or {}}


def _phases_and_steps(found: list[Lane], launches: pd.DataFrame) -> Iterator[Event]:
    """A step lasts from the end of the one before, or its first start where that is later, to its last end."""
    at = np.concatenate([lane.launch for lane in found])
    own = launches.iloc[at]
    table = pd.DataFrame(
        {
            "phase": own["phase"].astype(str).to_numpy(),
            "step": numbers(own["step"]),
            "start": np.concatenate([lane.start for lane in found]),
            "end": np.concatenate([lane.end for lane in found]),
        }
    )
    table = table[table["phase"] != UNATTRIBUTED]
    for tid, keys in ((_PHASES, ["phase"]), (_STEPS, ["phase", "step"])):
        spans = table.groupby(keys, sort=False).agg(start=("start", "min"), end=("end", "max")).reset_index()
        before = 0
        for row in spans.sort_values(["start", "end"], kind="stable").to_dict("records"):
            start = max(before, int(row["start"]))
            before = max(start, int(row["end"]))
            name = str(row["phase"]) if tid == _PHASES else f"{row['phase']} {int(row['step'])}"
            yield _slice(tid, name, start, before, "phase" if tid == _PHASES else "step")


def _gaps(found: list[Lane]) -> Iterator[Event]:
    boxes = _union(found)
    length = boxes.start[1:] - boxes.end[:-1]
    for i in np.flatnonzero(length >= _LEAST_GAP_NS):
        start, end = int(boxes.end[i]), int(boxes.start[i + 1])
        yield _slice(_GAPS, "no kernel running", start, end, "gap", {"length (µs)": (end - start) / 1e3})


def _union(found: list[Lane]) -> _Boxes:
    """The stretches in which anything runs, in order."""
    start, end = (np.concatenate([getattr(lane, side) for lane in found]) for side in ("start", "end"))
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.concatenate([[True], start[1:] > end[:-1]])
    last = np.concatenate([first[1:], [True]])
    return _Boxes(start[first], end[last])


def _module_slices(lane: Lane, launches: pd.DataFrame, tid: int) -> Iterator[Event]:
    """A slice opens where the first kernel of a module starts and ends where its last one ends."""
    outer = np.flatnonzero(lane.outermost)
    opened: list[str] = []
    at: Any = None
    ends = 0

    def close(depth: int) -> Iterator[Event]:
        while len(opened) > depth:
            yield {"ph": "E", "pid": _PID, "tid": tid, "name": opened.pop(), "cat": "module", "ts": ends / 1e3}

    for block in np.array_split(outer, max(1, len(outer) // _BLOCK)):
        rows = launches.iloc[lane.launch[block]]
        forward = zip(rows["phase"].astype(str), numbers(rows["step"]).tolist(), strict=True)
        bounds = zip(lane.start[block].tolist(), lane.end[block].tolist(), strict=True)
        for module, where, (start, end) in zip(rows["module"].astype(str), map(repr, forward), bounds, strict=True):
            wanted = _pieces(module)
            same = (a == b for a, b in zip(opened, wanted, strict=False))
            shared = sum(takewhile(bool, same)) if where == at else 0
            yield from close(shared)
            for name in wanted[shared:]:
                opened.append(name)
                yield {"ph": "B", "pid": _PID, "tid": tid, "name": name, "cat": "module", "ts": start / 1e3}
            at, ends = where, end
    yield from close(0)


def _pieces(module: str) -> list[str]:
    """The path's modules, outermost first; a layer's number goes with the list that it is in."""
    if module == UNATTRIBUTED:
        return []
    out: list[str] = []
    for piece in module.split("."):
        if piece.isdigit() and out:
            out[-1] += f".{piece}"
        else:
            out.append(piece)
    return out


def _kernel_slices(lane: Lane, launches: pd.DataFrame, kernels: pd.DataFrame, tid: int) -> Iterator[Event]:
    names: dict[str, str] = {}
    for first in range(0, len(lane.launch), _BLOCK):
        part = slice(first, first + _BLOCK)
        rows = launches.iloc[lane.launch[part]]
        placed = lane.row[part]
        args = _arguments(kernels, placed)
        steps = numbers(rows["step"])
        bounds = zip(lane.start[part].tolist(), lane.end[part].tolist(), rows["time_ns"].tolist(), strict=True)
        for i, (kernel, (start, end, own)) in enumerate(zip(rows["kernel"].astype(str), bounds, strict=True)):
            if kernel not in names:
                names[kernel] = shorten(kernel, 60) if "(" in kernel or "<" in kernel else kernel.removeprefix("aten::")
            more: dict[str, Any] = {} if np.isnan(steps[i]) else {"step": int(steps[i])}
            if lane.main[first + i]:
                more |= args[i]
            elif placed[i] >= 0:
                more["part of"] = args[i].get("op") or args[i]["module"]
            if lane.nested:
                more["self time, recorded (µs)"] = own / 1e3
            yield _slice(tid, names[kernel], start, end, args[i].get("kind of module", "kernel"), more)


def _arguments(kernels: pd.DataFrame, placed: NDArray[np.int64]) -> list[dict[str, Any]]:
    """For each position in `kernels` its figures with units, what is missing left out; {} for -1."""
    known = placed >= 0
    rows = kernels.iloc[placed[known]]
    out: list[dict[str, Any]] = [{} for _ in range(int(known.sum()))]
    for column, name in _WORDS:
        if column in rows:
            for args, value in zip(out, rows[column].astype("object").where(rows[column].notna(), None), strict=True):
                if value is not None:
                    args[name] = str(value)
    for column, name, scale in _FIGURES:
        if column in rows:
            for args, real in zip(out, (numbers(rows[column]) * scale).tolist(), strict=True):
                if real == real:
                    args[name] = int(real) if scale == 1.0 and real == int(real) else float(f"{real:.6g}")
    each = iter(out)
    return [next(each) if k else {} for k in known.tolist()]


def _counters(lane: Lane, kernels: pd.DataFrame, tid: int) -> Iterator[Event]:
    """What each placed kernel reaches, from its start to its end; of nested ones the outer."""
    reached = {
        "GB/s": (numbers(kernels["attained_byte_s"]) / 1e9),
        "GFLOP/s": (numbers(kernels["attained_flop_s"]) / 1e9),
        "% of roof": numbers(kernels["pct_of_roof"]),
    }
    if not len(kernels):
        return
    share = reached["% of roof"][lane.row]
    chosen = np.flatnonzero(lane.main & (lane.row >= 0) & (share > 0) & (lane.end > lane.start))
    name, falls = f"placed kernels, {lane.name}", None
    for i in chosen.tolist():
        start, end, row = int(lane.start[i]), int(lane.end[i]), int(lane.row[i])
        if falls is not None and start < falls:
            continue
        if falls is not None and start - falls >= _LEAST_GAP_NS:
            yield _count(tid, name, falls, dict.fromkeys(reached, 0.0))
        values = {n: float(f"{v[row]:.6g}") for n, v in reached.items() if v[row] == v[row]}
        yield _count(tid, name, start, values)
        falls = end
    if falls is not None:
        yield _count(tid, name, falls, dict.fromkeys(reached, 0.0))


def _count(tid: int, name: str, at: int, values: dict[str, float]) -> Event:
    return {"ph": "C", "pid": _PID, "tid": tid, "name": name, "ts": at / 1e3, "args": values}


def _flows(found: list[Lane], launches: pd.DataFrame, tid: int) -> Iterator[Event]:
    """The launching calls of each thread, where they are known, with an arrow to the kernel of each.

    Only their starts are recorded: they are drawn 1 ns long.
    """
    calls = []
    for i, lane in enumerate(found):
        rows = launches.iloc[lane.launch]
        calls.append(
            pd.DataFrame(
                {
                    "call": numbers(rows["launch_ns"]),
                    "thread": numbers(rows["thread"]),
                    "start": lane.start,
                    "to": _FIRST + 2 * i + 1,
                    "id": lane.launch,
                }
            )
        )
    table = pd.concat(calls, ignore_index=True).dropna(subset="call").sort_values("call", kind="stable")
    for thread, rows in table.groupby("thread", sort=True, dropna=False):
        name = "launching calls" if pd.isna(thread) else f"thread {int(float(str(thread)))}: launching calls"
        yield from _track(tid, name)
        before = -1
        arrows = zip(
            rows["call"].tolist(), rows["start"].tolist(), rows["to"].tolist(), rows["id"].tolist(), strict=True
        )
        for call, start, to, number in arrows:
            at = max(int(call), before)
            before = at + 1
            yield _slice(tid, "launch", at, at + 1, "launch", {"waited until it ran (µs)": (start - call) / 1e3})
            if at > start:  # clocks of host and device that disagree
                continue
            shared = {"pid": _PID, "name": "launch", "cat": "launch", "id": int(number)}
            yield {"ph": "s", "tid": tid, "ts": at / 1e3, **shared}
            yield {"ph": "f", "bp": "e", "tid": int(to), "ts": int(start) / 1e3, **shared}
        tid += 1
