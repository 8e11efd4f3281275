"""The rows of a run whose timeline nsys recorded: kernels and copies, and what the traced ops say of them.

nsys knows the module that launched a kernel, not the op. Within one call of a module the traced ops that
do work meet the kernels: one op owns all of them; as many ops as kernels are taken in order, as long as
matrix products fall on kernels named for them; else FLOPs and bytes are known for the group only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from kernelroof.models.errors import ReportError
from kernelroof.models.kinds import kind_of
from kernelroof.parsers.nsys_windows import step_windows
from kernelroof.parsers.schema import ROOT_MODULE, UNATTRIBUTED
from kernelroof.roofline.match import Matched
from kernelroof.roofline.match_rows import COLUMNS, NO_OP, NOT_TRACED, SHARED, has_work
from kernelroof.roofline.waiting import idle_before
from kernelroof.roofline.wall import PhaseWall, bare_times, phase_wall, union_ns

if TYPE_CHECKING:
    from kernelroof.models.ops import TracedOp
    from kernelroof.parsers.nsys_sqlite import Nsys

MODULE_GROUP = "its module's ops and kernels meet as a group: FLOPs and bytes are those of the group"
COPY = "a copy or memset beside kernels whose work is counted"

_PRODUCT = re.compile(r"gemm|gemv|matmul|cutlass|xmma|wgmma|nvjet|splitk|dot_kernel|cublas", re.IGNORECASE)
_ATTENTION = re.compile(r"flash|fmha|attention|sdpa|softmax", re.IGNORECASE)

_Call = tuple[str, int, str]


def rows_of_nsys(nsys: Nsys, traced_ops: Sequence[TracedOp]) -> Matched:
    """One row per kernel and copy of the phases, with the columns of `match.Matched`.

    A traced op is sought in the nearest recorded module above its own, as in `match.match`.
    """
    work = nsys.work[(nsys.work["phase"] != UNATTRIBUTED) & (nsys.work["kind"] != "graph")]
    order = work["launch_ns"].fillna(work["start_ns"])
    work = work.assign(_order=order).sort_values(["_order", "start_ns"], kind="stable").reset_index(drop=True)
    steps = work["step"].fillna(-1).astype("int64")
    calls: dict[_Call, list[int]] = defaultdict(list)
    for row, call in enumerate(zip(work["phase"], steps, work["module"], strict=True)):
        calls[call].append(row)
    is_kernel = (work["kind"] == "kernel").to_numpy(bool)
    names = work["name"].astype(str).tolist()
    traced = _by_call(traced_ops, calls)
    known_steps = {(op.phase, op.step) for op in traced_ops}
    given: list[dict[str, Any]] = [{} for _ in names]
    used: set[int] = set()
    for number, (call, rows) in enumerate(calls.items()):
        positions = traced.get(call, [])
        kernels = [r for r in rows if is_kernel[r]] or rows
        for row in rows:
            given[row] = {"group": number, "reason": NO_OP if call[:2] in known_steps else NOT_TRACED}
        if not positions:
            continue
        used.update(positions)
        ops = [traced_ops[p] for p in positions]
        for row in rows:
            given[row]["reason"] = COPY
        _give(kernels, ops, names, given)
    rows_table = _table(work, given, names)
    lost = [op for p, op in enumerate(traced_ops) if p not in used and has_work(op)]
    return Matched(rows_table, lost)


def walls_of_nsys(rows: pd.DataFrame, nsys: Nsys, bare: Mapping[str, Any]) -> dict[str, PhaseWall]:
    """Where the bare wall time of each phase went; kernels keep their recorded durations.

    Raises:
        ReportError: the two runs differ in their phases or their number of decode steps.
    """
    truths = bare_times(bare)
    if set(rows["phase"]) != set(truths):
        raise ReportError(
            f"the recording has {' and '.join(sorted(set(rows['phase']))) or 'no phase'}, "
            f"the bare run {' and '.join(sorted(truths))}",
            "Run both again.",
        )
    windows = step_windows(nsys)
    walls = {}
    for phase, truth in truths.items():
        own = windows[(windows["phase"] == phase) & (windows["kernels"] > 0)]
        seen = own["step"].nunique()
        if truth.step_ns and seen not in (0, len(truth.step_ns)):
            raise ReportError(
                f"the recording has {seen} {phase} steps, the bare run {len(truth.step_ns)}", "Run both again."
            )
        here = rows[rows["phase"] == phase]
        start = here["start_ns"].to_numpy(dtype=np.int64)
        end = start + here["recorded_ns"].to_numpy(dtype=np.int64)
        total, busy = int((end - start).sum()), union_ns(start, end)
        recorded = int(own["length_ns"].sum())
        walls[phase] = phase_wall(truth, recorded, 0, 1.0, total, truth.wall_ns - busy, total - busy)
    return walls


def idle_of_nsys(rows: pd.DataFrame, nsys: Nsys) -> pd.Series[int]:
    """Time right before each row in which no kernel of its phase ran, from the phase's first window on."""
    windows = step_windows(nsys)
    begun = windows[windows["kernels"] > 0].groupby("phase")["start_ns"].min()
    out: pd.Series[int] = pd.Series(0, index=rows.index, dtype="Int64")
    for phase, own in rows.groupby("phase", sort=False):
        start = own["start_ns"].to_numpy(dtype=np.int64)
        end = start + own["recorded_ns"].to_numpy(dtype=np.int64)
        first = int(begun[phase]) if phase in begun else int(start.min())
        out[own.index] = idle_before(start, end, first)
    return out


def _by_call(traced_ops: Sequence[TracedOp], calls: Mapping[_Call, list[int]]) -> dict[_Call, list[int]]:
    """Positions of the traced ops that do work, by the recorded call that ran them, in their order."""
    nearest: dict[_Call, _Call] = {}
    out: dict[_Call, list[int]] = defaultdict(list)
    for position in sorted(range(len(traced_ops)), key=lambda p: traced_ops[p].ordinal):
        op = traced_ops[position]
        if not has_work(op):
            continue
        wanted = (op.phase, op.step, op.module)
        if wanted not in nearest:
            module = op.module
            while module and (op.phase, op.step, module) not in calls:
                module = module.rpartition(".")[0]
            nearest[wanted] = (op.phase, op.step, module or ROOT_MODULE)
        out[nearest[wanted]].append(position)
    return out


def _give(kernels: list[int], ops: list[TracedOp], names: list[str], given: list[dict[str, Any]]) -> None:
    """Give the ops of one call to its kernels: one to one where that is plain, else to the group."""
    flops = sum(op.flops for op in ops)
    moved = sum(op.read_bytes + op.write_bytes for op in ops)
    if len(ops) == len(kernels) and all(_fits(op, names[r]) for op, r in zip(ops, kernels, strict=True)):
        for op, row in zip(ops, kernels, strict=True):
            given[row] |= {"op": op, "whole": True, "reason": "", "flops": op.flops, "bytes": None}
            given[row] |= {"read": op.read_bytes, "write": op.write_bytes}
        return
    one = ops[0] if len(ops) == 1 else None
    for row in kernels:
        given[row] |= {"op": one, "reason": SHARED if one else MODULE_GROUP, "flops": flops, "bytes": moved}
        if len(kernels) == 1:
            read, write = sum(op.read_bytes for op in ops), sum(op.write_bytes for op in ops)
            given[row] |= {"whole": True, "reason": "", "read": read, "write": write}


def _fits(op: TracedOp, kernel: str) -> bool:
    """Whether a kernel's name speaks for or at least not against an op."""
    if op.flops_kind in ("matmul", "scan"):
        return bool(_PRODUCT.search(kernel))
    if op.flops_kind == "attention":
        return bool(_ATTENTION.search(kernel) or _PRODUCT.search(kernel))
    return not _PRODUCT.search(kernel)


def _table(work: pd.DataFrame, given: list[dict[str, Any]], names: list[str]) -> pd.DataFrame:
    """The columns of `COLUMNS`, rows by start."""
    ops: list[TracedOp | None] = [g.get("op") for g in given]
    whole = np.array([bool(g.get("whole")) for g in given], bool)
    grouped = np.array(["flops" in g for g in given], bool)
    modules = work["module"].astype(str).tolist()

    def whole_numbers(key: str, valid: Any) -> Any:
        values = [int(g.get(key) or 0) for g in given]
        return pd.arrays.IntegerArray(np.array(values, np.int64), ~valid)

    def texts(values: Sequence[str | None]) -> Any:
        return pd.array(list(values), dtype="string")

    moved = [g.get("bytes") if g.get("bytes") is not None else g.get("read", 0) + g.get("write", 0) for g in given]
    # Row ids are per table of the export: those of copies are made negative, so that none is a kernel's.
    event = work["event"].where(work["kind"] == "kernel", -1 - work["event"])
    table = work.assign(
        event=event,
        kernel=names,
        op=texts([op.op if op else None for op in ops]),
        kind=[kind_of(op.module, op.op, op.role) if op else kind_of(m) for op, m in zip(ops, modules, strict=True)],
        module=[op.module if op else m for op, m in zip(ops, modules, strict=True)],
        count=1,
        shapes=texts([op.shapes if op else None for op in ops]),
        dtype=texts([op.dtype or None if op else None for op in ops]),
        recorded_ns=work["time_ns"],
        flops=whole_numbers("flops", whole),
        dram_read_bytes=whole_numbers("read", whole),
        dram_write_bytes=whole_numbers("write", whole),
        time_source="nsys",
        flops_source=texts(["traced" if w else None for w in whole]),
        bytes_source=texts(["traced" if w else None for w in whole]),
        reason=texts([g["reason"] or None for g in given]),
        group=[g["group"] for g in given],
        group_flops=whole_numbers("flops", grouped),
        group_bytes=pd.arrays.IntegerArray(np.array(moved, np.int64), ~grouped),
    )
    table = table.sort_values("start_ns", kind="stable", ignore_index=True)
    table["ordinal"] = table.groupby(["phase", "step"], dropna=False, sort=False).cumcount()
    out: pd.DataFrame = table[list(COLUMNS)]
    return out
