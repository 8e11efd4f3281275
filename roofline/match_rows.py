"""The rows of a matched recording: per recorded op on a CPU, per kernel and copy on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.models.kinds import kind_of
from kernelroof.parsers.kineto import Kineto, ordinals
from kernelroof.parsers.schema import KEYS, UNATTRIBUTED

if TYPE_CHECKING:
    from kernelroof.models.ops import TracedOp

WRAPPER = "wrapper: dispatch only"
NO_WORK = "no work: metadata only"
NO_OP = "matches no traced op of its module"
NOTHING = frozenset(
    f"aten::{name}"
    for name in (
        "to reshape _reshape_alias contiguous empty empty_like empty_strided new_empty detach detach_ lift lift_fresh "
        "resolve_conj resolve_neg expand_as view_as type_as"
    ).split()
) | {"detach_"}
"""Ops that, with no other op inside, return their input or memory that nobody has written yet."""
NOT_TRACED = "its step was not traced"
HELPER = "prepares an op whose work is counted on its kernel"
SHARED = "one op, several kernels: FLOPs and bytes are those of the group"

COLUMNS = (
    *(c.name for c in KEYS),
    *("kind", "count", "shapes", "dtype", "recorded_ns", "flops", "dram_read_bytes", "dram_write_bytes"),
    *("time_source", "flops_source", "bytes_source", "reason", "event", "start_ns", "thread", "device"),
    *("stream", "group", "group_flops", "group_bytes"),
)

Ints = npt.NDArray[np.int64]


def has_work(op: TracedOp) -> bool:
    """Whether an op computes or moves anything (a view does neither)."""
    return bool(op.flops or op.read_bytes or op.write_bytes)


def rows_of(kineto: Kineto, events: pd.Series[int]) -> Ints:
    """Rows of `kineto.ops` of these op events; -1 for null."""
    row = pd.Series(np.arange(len(kineto.ops)), index=kineto.ops["event"].to_numpy())
    return events.map(row).astype("Int64").fillna(-1).to_numpy(dtype=np.int64)


def owners(kineto: Kineto, is_owner: npt.NDArray[np.bool_]) -> Ints:
    """For each recorded op, the row of the innermost owner that it is or runs inside of, or -1."""
    out = [-1] * len(is_owner)
    parents = rows_of(kineto, kineto.ops["parent"]).tolist()
    # A parent stands before its children.
    for row, (parent, own) in enumerate(zip(parents, is_owner.tolist(), strict=True)):
        out[row] = row if own else out[parent] if parent >= 0 else -1
    return np.array(out, dtype=np.int64)


def op_rows(kineto: Kineto, traced_ops: Sequence[TracedOp], op_of: Ints) -> tuple[pd.DataFrame, set[int]]:
    """One row per matched op with all that ran inside it, and one per op outside of those.

    Args:
        op_of: for each recorded op, the position of its traced op, or -1.

    Returns:
        The rows, and the positions of the traced ops that they stand for.
    """
    ops = kineto.ops
    everyone = np.arange(len(ops))
    owner = owners(kineto, op_of >= 0)
    owner = np.where(owner >= 0, owner, everyone)
    time_ns = np.zeros(len(ops), dtype=np.int64)
    np.add.at(time_ns, owner, ops["self_ns"].to_numpy())
    keep = (owner == everyone) & (ops["phase"] != UNATTRIBUTED).to_numpy()
    position = op_of[keep]
    rows = (
        ops[keep]
        .rename(columns={"name": "kernel"})
        .assign(
            op=ops["name"][keep],
            recorded_ns=time_ns[keep],
            device="cpu",
            stream=pd.array([pd.NA] * int(keep.sum()), dtype="Int64"),
            group=ops["event"][keep],
            reason=np.where(_around_matched(kineto, op_of)[keep], WRAPPER, ""),
        )
    )
    return _finish(rows, traced_ops, position), set(position[position >= 0].tolist())


def kernel_rows(kineto: Kineto, traced_ops: Sequence[TracedOp], op_of: Ints) -> tuple[pd.DataFrame, set[int]]:
    """One row per kernel and copy launched in the phases; arguments and result as in `op_rows`.

    A matched op without work needs no kernel to count as stood for.
    """
    kernels = kineto.kernels[kineto.kernels["phase"] != UNATTRIBUTED]
    launching = rows_of(kineto, kernels["op_event"])
    owner = np.append(owners(kineto, op_of >= 0), -1)[launching]
    position = np.append(op_of, -1)[owner]
    matched = owner >= 0
    # An op's work is its kernel's; a memset or copy beside a kernel only prepares.
    is_kernel = (kernels["kind"] == "kernel").to_numpy()
    groups = len(kineto.ops) + 1
    with_kernel = np.bincount(owner[matched & is_kernel], minlength=groups)[owner] > 0
    worker = matched & (is_kernel | ~with_kernel)
    shared = worker & (np.bincount(owner[worker], minlength=groups)[owner] > 1)
    group = np.where(matched, owner, launching)
    rows = kernels.rename(columns={"name": "kernel", "dur_ns": "recorded_ns"}).assign(
        op=kineto.ops["name"].reindex(group).to_numpy(),
        group=pd.arrays.IntegerArray(np.append(kineto.ops["event"].to_numpy(), 0)[group], group < 0),
        reason=np.select([shared, matched & ~worker], [SHARED, HELPER], ""),
    )
    used = set(position[matched].tolist())
    used |= {p for p in op_of[op_of >= 0].tolist() if not has_work(traced_ops[p])}
    return _finish(rows, traced_ops, position), used


def _around_matched(kineto: Kineto, op_of: Ints) -> npt.NDArray[np.bool_]:
    """Whether each recorded op has a matched one inside it."""
    parents = rows_of(kineto, kineto.ops["parent"]).tolist()
    around = np.zeros(len(op_of), dtype=bool)
    for row in np.flatnonzero(op_of >= 0).tolist():
        above = parents[row]
        while above >= 0 and not around[above]:
            around[above] = True
            above = parents[above]
    return around


def _finish(rows: pd.DataFrame, traced_ops: Sequence[TracedOp], position: Ints) -> pd.DataFrame:
    """Add what the traced ops know (position -1: none); rows by start, columns as in `COLUMNS`."""
    hit = position >= 0
    ops = [traced_ops[p] if p >= 0 else None for p in position.tolist()]
    reason = np.array(rows["reason"], dtype=object)
    # Where a reason stands already, the work can't be given to this single row.
    whole = hit & (reason == "")
    idle = whole & np.array([op is not None and not has_work(op) for op in ops], dtype=bool)
    reason[idle] = NO_WORK
    steps = {(op.phase, op.step) for op in traced_ops}
    keys = zip(rows["phase"], rows["step"].fillna(-1).astype("int64"), strict=True)
    known = np.array([key in steps for key in keys], dtype=bool)
    silent = ~hit & (reason == "")
    nothing = silent & known & rows["kernel"].isin(NOTHING).to_numpy(bool)
    reason[silent & known] = NO_OP
    reason[nothing] = NO_WORK
    # Work of a wrapper is counted on the op inside it; its own time is dispatch.
    idle_unmatched = nothing | (reason == WRAPPER)
    reason[silent & ~known] = NOT_TRACED
    reason[reason == ""] = None

    def numbers(values: list[int], valid: npt.NDArray[np.bool_]) -> pd.arrays.IntegerArray:
        return pd.arrays.IntegerArray(np.array(values, dtype=np.int64), ~valid)

    def texts(values: list[str | None]) -> pd.Series[str]:
        column: pd.Series[str] = pd.Series(np.array(values, dtype=object), index=rows.index, dtype="str")
        return column

    names = zip(ops, rows["module"], rows["op"], strict=True)
    kinds = [kind_of(*((op.module, op.op, op.role) if op else (m, o or ""))) for op, m, o in names]
    flops = [op.flops if op else 0 for op in ops]
    total = [op.read_bytes + op.write_bytes if op else 0 for op in ops]
    source = texts(["traced" if w else None for w in (whole | idle_unmatched).tolist()])
    rows = rows.assign(
        module=[op.module if op else module for op, module in zip(ops, rows["module"], strict=True)],
        kind=kinds,
        count=1,
        shapes=texts([op.shapes if op else None for op in ops]),
        dtype=texts([op.dtype or None if op else None for op in ops]),
        flops=numbers(flops, whole | idle_unmatched),
        dram_read_bytes=numbers([op.read_bytes if op else 0 for op in ops], whole | idle_unmatched),
        dram_write_bytes=numbers([op.write_bytes if op else 0 for op in ops], whole | idle_unmatched),
        time_source="torch",
        flops_source=source,
        bytes_source=source,
        reason=reason,
        group_flops=numbers(flops, hit),
        group_bytes=numbers(total, hit),
    ).sort_values("start_ns", kind="stable", ignore_index=True)
    rows = rows.assign(ordinal=ordinals(rows))
    plain = ("kernel", "op", "module", "kind", "time_source", "device", "reason")
    table: pd.DataFrame = rows.astype(dict.fromkeys(plain, "str"))[list(COLUMNS)]
    return table
