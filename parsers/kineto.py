"""Kineto traces (torch.profiler's `export_chrome_trace`) as tables of ops, kernels and ranges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.parsers.kineto_events import CALL, KERNEL, MEMCPY, MEMSET, OP, RANGE, Events, read_events
from kernelroof.parsers.kineto_nesting import NO_STEP, Labels, Nesting, label_ranges, nest, preorder
from kernelroof.parsers.schema import LAUNCHES, UNATTRIBUTED, conform

_KINDS = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset"}

Ints = npt.NDArray[np.int64]


class Kineto(NamedTuple):
    """One recording. Times are integer ns from its first event; an event's id is its position in the file.

    `ops`, the CPU ops, an enclosing op before what it encloses: event, parent (the op around it on
    its thread), name, thread, start_ns, dur_ns, self_ns (without the ops directly inside), children
    (ops directly inside), ranges_inside (ranges with this op as the innermost around them),
    external_id, phase, step, module.

    `kernels`, the device's work, by start: event, name, kind (kernel, memcpy, memset), device,
    stream, start_ns, dur_ns, correlation, external_id, op_event (the CPU op that launched it),
    thread and launch_ns of the launching call, grid, block, shared_bytes, phase, step, module. Phase, step and
    module are those of the launching call: a kernel runs later than the range that launched it.

    `ranges`, the user's ranges, outermost first: event, name, thread, start_ns, dur_ns, path, level
    (phase, step, module, other), op_event (the op around it), phase, step, module of the work
    directly in it.
    """

    ops: pd.DataFrame
    kernels: pd.DataFrame
    ranges: pd.DataFrame
    device_properties: list[dict[str, Any]]


def read_kineto(path: str | Path) -> Kineto:
    """Read a Kineto trace, `.json` or `.json.gz` (told apart by content).

    Raises:
        ReportError: not readable, not JSON, cut short, or JSON that is no such trace.
    """
    events = read_events(Path(path))
    host = np.flatnonzero(events.category <= CALL)
    host = host[preorder(events.thread[host], events.start_ns[host], events.dur_ns[host])]
    category = events.category[host]
    nesting = nest(events.thread[host], events.start_ns[host], events.dur_ns[host], category == OP, category == RANGE)
    is_range = np.flatnonzero(category == RANGE)
    # From positions among the host events to rows of the ranges; one more entry keeps -1 at -1.
    range_row = np.full(len(host) + 1, -1, dtype=np.int64)
    range_row[is_range] = np.arange(len(is_range))
    around = range_row[nesting.range]
    names = [events.names[n] for n in events.name[host[is_range]].tolist()]
    labels = label_ranges(names, around[is_range])
    return Kineto(
        _ops(events, host, nesting, around, labels),
        _kernels(events, host, nesting, around, labels),
        _ranges(events, host, nesting, names, labels),
        events.device_properties,
    )


def launches(kineto: Kineto) -> pd.DataFrame:
    """The recording as the table `launches` of `kernelroof.parsers.schema`.

    With device work in it, one row per kernel and copy; else one row per CPU op with its self time.
    """
    if len(kineto.kernels):
        table = kineto.kernels.rename(columns={"name": "kernel", "dur_ns": "time_ns"})
        by_event = pd.Series(kineto.ops["name"].to_numpy(), index=kineto.ops["event"].to_numpy())
        table["op"] = table["op_event"].map(by_event)
    else:
        ops = kineto.ops.sort_values("start_ns", kind="stable", ignore_index=True)
        table = ops.rename(columns={"name": "kernel", "self_ns": "time_ns"}).assign(
            op=ops["name"], device="cpu", stream=pd.NA, launch_ns=pd.NA, grid=pd.NA, block=pd.NA, shared_bytes=pd.NA
        )
    table = table.assign(ordinal=ordinals(table), ranges=pd.NA, time_source="torch")
    return conform(table, LAUNCHES, "launches")


def ordinals(table: pd.DataFrame) -> pd.Series[int]:
    """The position of each row among the rows of its phase and step, from 0, in the table's order."""
    return table.groupby(["phase", "step"], dropna=False, sort=False).cumcount()


def _ops(events: Events, host: Ints, nesting: Nesting, around: Ints, labels: Labels) -> pd.DataFrame:
    is_op = events.category[host] == OP
    rows = np.flatnonzero(is_op)
    has_parent = nesting.op >= 0
    parents = nesting.op[has_parent]
    is_range = events.category[host][has_parent] == RANGE
    size = len(host)
    at = host[rows]
    parent = nesting.op[rows]
    table = {
        "event": events.event[at],
        "parent": _nullable(np.where(parent >= 0, events.event[host[parent]], -1)),
        "name": _texts(events.names, events.name[at]),
        "thread": _threads(events, at),
        "start_ns": events.start_ns[at],
        "dur_ns": events.dur_ns[at],
        "self_ns": nesting.own_ns[rows],
        "children": np.bincount(parents[is_op[has_parent]], minlength=size)[rows],
        "ranges_inside": np.bincount(parents[is_range], minlength=size)[rows],
        "external_id": _nullable(events.external_id[at]),
    }
    return _frame(table | _labelled(labels, around[rows]))


def _kernels(events: Events, host: Ints, nesting: Nesting, around: Ints, labels: Labels) -> pd.DataFrame:
    rows = np.flatnonzero(events.category >= KERNEL)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    calls = np.flatnonzero(events.category[host] == CALL)
    call = _look_up(events.correlation[rows], events.correlation[host[calls]], calls)
    # What CUPTI did not link to a call is linked by the id that torch gave the op, if there is one.
    ops = np.flatnonzero(events.category[host] == OP)
    named = _look_up(events.external_id[rows], events.external_id[host[ops]], ops)
    op = _at(nesting.op, call)
    op = np.where(op >= 0, op, named)
    # Calls made by another thread than the op's (or with none) take the ranges of the op.
    inside = _at(around, call)
    inside = np.where(inside < 0, _at(around, op), inside)
    devices, device = np.unique(events.device[rows], return_inverse=True)
    table = {
        "event": events.event[rows],
        "name": _texts(events.names, events.name[rows]),
        "kind": _texts([_KINDS[c] for c in sorted(_KINDS)], events.category[rows] - KERNEL),
        "device": _texts([f"cuda:{d}" if d >= 0 else "cuda" for d in devices.tolist()], device),
        "stream": _nullable(events.stream[rows]),
        "start_ns": events.start_ns[rows],
        "dur_ns": events.dur_ns[rows],
        "correlation": _nullable(events.correlation[rows]),
        "external_id": _nullable(events.external_id[rows]),
        "op_event": _nullable(_at(events.event[host], op)),
        "thread": _nullable(_at(_threads(events, host), call)),
        "launch_ns": _nullable(_at(events.start_ns[host], call)),
        "grid": _texts([*events.sizes, ""], events.grid[rows]).replace("", None),
        "block": _texts([*events.sizes, ""], events.block[rows]).replace("", None),
        "shared_bytes": _nullable(events.shared_bytes[rows]),
    }
    return _frame(table | _labelled(labels, inside))


def _ranges(events: Events, host: Ints, nesting: Nesting, names: list[str], labels: Labels) -> pd.DataFrame:
    rows = np.flatnonzero(events.category[host] == RANGE)
    at = host[rows]
    op = nesting.op[rows]
    table = {
        "event": events.event[at],
        "name": pd.Series(names, dtype="str"),
        "thread": _threads(events, at),
        "start_ns": events.start_ns[at],
        "dur_ns": events.dur_ns[at],
        "path": pd.Series(labels.path, dtype="str"),
        "level": pd.Series(labels.level, dtype="str"),
        "op_event": _nullable(np.where(op >= 0, events.event[host[op]], -1)),
    }
    return _frame(table | _labelled(labels, np.arange(len(rows))))


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    frame: pd.DataFrame = pd.DataFrame(columns)
    return frame


def _labelled(labels: Labels, row: Ints) -> dict[str, Any]:
    """Phase, step and module of what lies directly in these ranges (-1: in none)."""
    step = np.append(labels.step, NO_STEP)[row]
    return {
        "phase": _texts([*labels.phase, UNATTRIBUTED], row),
        "step": _nullable(step),
        "module": _texts([*labels.module, UNATTRIBUTED], row),
    }


def _at(values: Ints, rows: Ints) -> Ints:
    """The values of these rows, -1 for the row -1; there may be no values at all."""
    return np.append(values, -1)[rows]


def _look_up(wanted: Ints, keys: Ints, values: Ints) -> Ints:
    """For each wanted key (-1: none), the value of its first occurrence among `keys`, or -1."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    found = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    hit = order[found]
    return np.where((keys[hit] == wanted) & (wanted >= 0), values[hit], -1)


def _threads(events: Events, rows: Ints) -> Ints:
    """Thread ids; a thread that the file names by a text, or by more than 64 bits, gets a negative number."""
    ids = [
        tid if isinstance(tid, int) and abs(tid) < 1 << 63 else -1 - code
        for code, (_, tid) in enumerate(events.threads)
    ]
    return np.array([*ids, -1], dtype=np.int64)[events.thread[rows]]


def _texts(texts: Sequence[str], codes: Ints) -> pd.Series[str]:
    """The texts at these positions (-1 is the last); equal texts share one object."""
    column: pd.Series[str] = pd.Series(np.array(texts, dtype=object)[codes], dtype="str")
    return column


def _nullable(values: Ints) -> pd.arrays.IntegerArray:
    """Integers where a negative number stands for null."""
    return pd.arrays.IntegerArray(values, values < 0)
