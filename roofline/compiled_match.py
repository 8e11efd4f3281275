"""Rows of a run under torch.compile: recorded kernels meet the calls of the compiled graphs, and their modules.

A library's product or attention has the FLOPs of the traced op of its module. What a generated kernel computes
is known by its ops, but not what it moves: its FLOPs and bytes stay null.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.models.kinds import kind_of
from kernelroof.parsers.kineto import Kineto
from kernelroof.parsers.schema import ROOT_MODULE, SAMPLE_MODULE, UNATTRIBUTED
from kernelroof.roofline.compiled_calls import Call, assign, calls_by_phase, common_module
from kernelroof.roofline.match import Matched, matched_ops
from kernelroof.roofline.match_rows import NO_OP, SHARED, WRAPPER, has_work, kernel_rows, op_rows, rows_of

if TYPE_CHECKING:
    from kernelroof.models.ops import TracedOp

_GRAPH = re.compile(r"^graph_\d+_(?=cpp_)")
_DISPATCH = re.compile(
    r"^(Torch-Compiled Region|TorchDynamo Cache Lookup|Pregraph bytecode|AOTDispatcher|## Call CompiledFx)"
)
FUSED = "a generated kernel: what it computes and moves is not known"
NOT_SAME = "compiled code hands it other operands than the traced op has: FLOPs not known"
_PRODUCTS = ("matmul", "attention", "scan")


class Found(NamedTuple):
    """One recorded kernel with its call(s): `calls` are positions among those of its phase."""

    phase: str
    step: int
    calls: tuple[int, ...]
    alone: bool
    why: str


def match_compiled(kineto: Kineto, traced_ops: Sequence[TracedOp], compiled: Mapping[str, Any]) -> Matched:
    """The rows of a compiled run's recording by torch.profiler, with the columns of `match.Matched`.

    Every kernel keeps its phase and step. It gets a module where the compiled graph tells which of its calls it
    is; else its module is (unattributed), with the reason. The time that dispatch takes stays with (root).
    """
    calls = calls_by_phase(compiled)
    on_gpu = len(kineto.kernels) > 0
    found = _found_kernels(kineto, calls) if on_gpu else _found_ops(kineto, calls)
    sampled = [p for p, op in enumerate(traced_ops) if op.module == SAMPLE_MODULE]
    own = matched_ops(kineto, [traced_ops[p] for p in sampled])
    op_of = np.append(np.array(sampled, np.int64), -1)[own]
    if not on_gpu:
        traced = _by_place(traced_ops)
        row_of = dict(zip(kineto.ops["event"].tolist(), range(len(kineto.ops)), strict=True))
        for event, kernel in found.items():
            position = _position(kernel, calls, traced, traced_ops)
            if position is not None:
                op_of[row_of[event]] = position
    rows, used = (kernel_rows if on_gpu else op_rows)(kineto, traced_ops, op_of)
    inside = {} if on_gpu else _inside(kineto, found)
    return relabel(rows, found, inside, calls, traced_ops, used)


def match_compiled_nsys(
    base: Matched, traced_ops: Sequence[TracedOp], launched: Mapping[int, float], compiled: Mapping[str, Any]
) -> Matched:
    """The same for a recording by nsys.

    Args:
        base: of `nsys_rows.rows_of_nsys`, given the traced ops of (sample) only.
        launched: by event, when a kernel was launched; kernels of one graph launch run in their order.
    """
    calls = calls_by_phase(compiled)
    rows = base.rows
    kernels = rows[(rows["module"] == ROOT_MODULE) & (rows["event"] >= 0)]
    order = kernels.assign(
        _launch=[launched.get(int(e), s) for e, s in zip(kernels["event"], kernels["start_ns"], strict=True)]
    )
    found = _assigned(
        order.sort_values(["_launch", "start_ns"], kind="stable"), order["kernel"].astype(str), calls, ops_named=False
    )
    lost = {id(op) for op in base.unmatched_traced}
    used = {p for p, op in enumerate(traced_ops) if op.module == SAMPLE_MODULE and id(op) not in lost}
    return relabel(rows, found, {}, calls, traced_ops, used)


def relabel(
    rows: pd.DataFrame,
    found: Mapping[int, Found],
    inside: Mapping[int, int],
    calls: Mapping[str, list[Call]],
    traced_ops: Sequence[TracedOp],
    used: set[int],
) -> Matched:
    """Give rows the module and the work of their calls.

    Args:
        found: by event. inside: for an event within a found one, that one's event.
        used: positions of traced ops that have a row already.
    """
    traced = _by_place(traced_ops)
    changed: dict[str, list[Any]] = {c: rows[c].tolist() for c in _CHANGED}
    for row, event in enumerate(rows["event"].tolist()):
        kernel = found.get(event) or found.get(inside.get(event, -1))
        if kernel is None:
            if _DISPATCH.match(str(changed["kernel"][row])):
                _set(changed, row, reason=WRAPPER, flops=0, dram_read_bytes=0, dram_write_bytes=0)
                _set(changed, row, flops_source="traced", bytes_source="traced")
            continue
        phase_calls = [calls[kernel.phase][i] for i in kernel.calls]
        module = common_module([c.module for c in phase_calls if c.module]) if phase_calls else None
        if module is None or any(c.module is None for c in phase_calls):
            _set(changed, row, module=UNATTRIBUTED, kind=kind_of(UNATTRIBUTED), reason=f"compiled: {kernel.why}")
            continue
        position = _position(kernel, calls, traced, traced_ops)
        if event not in found:
            _set(changed, row, module=module, kind=kind_of(module))
        elif position is None:
            _set(changed, row, module=module, kind=kind_of(module), reason=_fused(phase_calls))
        else:
            used.add(position)
            _give(changed, row, kernel, phase_calls[0], traced_ops[position])
    table: pd.DataFrame = rows.assign(**{c: _column(values, rows[c]) for c, values in changed.items()})
    lost = [op for p, op in enumerate(traced_ops) if p not in used and has_work(op)]
    # The other traced ops of a place whose kernels are known run inside generated kernels.
    sure = {(f.phase, f.step) for f in found.values()} - {(f.phase, f.step) for f in found.values() if not f.calls}
    return Matched(table, [o for o in lost if o.flops_kind in _PRODUCTS or (o.phase, o.step) not in sure])


_CHANGED = (
    *("kernel", "module", "kind", "op", "shapes", "dtype", "flops", "dram_read_bytes", "dram_write_bytes"),
    *("flops_source", "bytes_source", "reason", "group", "group_flops", "group_bytes"),
)


def _set(changed: dict[str, list[Any]], row: int, **values: Any) -> None:
    for name, value in values.items():
        changed[name][row] = value


def _column(values: list[Any], like: pd.Series[Any]) -> pd.Series[Any]:
    column: pd.Series[Any] = pd.Series([None if pd.isna(v) else v for v in values], index=like.index, dtype=like.dtype)
    return column


def _give(changed: dict[str, list[Any]], row: int, kernel: Found, call: Call, op: TracedOp) -> None:
    """Give a row the work of its traced op, as far as compiled code does the same."""
    _set(changed, row, module=op.module, kind=kind_of(op.module, op.op, op.role), op=op.op)
    _set(changed, row, shapes=op.shapes, dtype=op.dtype or None)
    same = _same_work(call, op)
    flops = op.flops if same else None
    moved = (call.read_bytes, call.write_bytes) if None not in (call.read_bytes, call.write_bytes) else (None, None)
    if not kernel.alone:
        total = None if moved[0] is None or moved[1] is None else moved[0] + moved[1]
        _set(changed, row, flops=None, dram_read_bytes=None, dram_write_bytes=None, reason=SHARED)
        _set(changed, row, flops_source=None, bytes_source=None, group_flops=flops, group_bytes=total)
        # Kernels of one call are one group: by step and call, negative so that no event has that number.
        _set(changed, row, group=-1 - (kernel.step * 1_000_000 + kernel.calls[0]) * 2 - (kernel.phase == "decode"))
        return
    _set(changed, row, flops=flops, dram_read_bytes=moved[0], dram_write_bytes=moved[1])
    _set(changed, row, flops_source="traced" if same else None, bytes_source="traced" if moved[0] is not None else None)
    _set(changed, row, reason=None if same and moved[0] is not None else NOT_SAME if not same else "bytes not known")
    total = None if moved[0] is None or moved[1] is None else moved[0] + moved[1]
    _set(changed, row, group_flops=flops, group_bytes=total)


def _same_work(call: Call, op: TracedOp) -> bool:
    """Whether a library's kernel does what the traced op says.

    Products of one module are alike. Attention is, if it sees as many keys, and is cut causally in both or in
    neither (a compiled graph hands over a mask where the traced op is causal by itself, or the other way round).
    """
    if op.flops_kind != "attention":
        return True
    shapes = [[int(n) for n in found.split(",") if n] for found in re.findall(r"\[([\d,]*)\]", op.shapes)]
    if len(shapes) < 2 or len(call.shapes) < 2 or len(shapes[1]) < 2 or len(call.shapes[1]) < 2:
        return False
    masked = len(call.shapes) > 3
    return shapes[1][-2] == call.shapes[1][-2] and not (masked and op.flops != op.flops_full)


def _fused(calls: Sequence[Call]) -> str:
    modules = sorted({m for c in calls for m in c.modules})
    names = sorted({o.removeprefix("aten::") for c in calls for o in c.ops})
    if len(calls) > 1:
        return f"compiled: kernels of {len(calls)} calls can't be told apart ({', '.join(names[:6])})"
    if calls[0].extern:
        return f"compiled: no traced op of its module is {calls[0].kernel}"
    shown = f"{', '.join(modules[:3])}{f' and {len(modules) - 3} more' if len(modules) > 3 else ''}"
    return f"compiled: {FUSED} (ops of {shown})"


def _by_place(traced_ops: Sequence[TracedOp]) -> dict[tuple[str, int, str, str], list[int]]:
    """Positions of products and attention by phase, step, module and what kind they are."""
    found: dict[tuple[str, int, str, str], list[int]] = defaultdict(list)
    for position, op in enumerate(traced_ops):
        if op.flops_kind in _PRODUCTS:
            found[op.phase, op.step, op.module, op.flops_kind].append(position)
    return found


def _position(
    kernel: Found,
    calls: Mapping[str, list[Call]],
    traced: Mapping[tuple[str, int, str, str], list[int]],
    traced_ops: Sequence[TracedOp],
) -> int | None:
    """The one traced op that a library's kernel stands for: of its module, and the only one of its kind there."""
    if len(kernel.calls) != 1:
        return None
    call = calls[kernel.phase][kernel.calls[0]]
    if not call.extern or call.module is None:
        return None
    kind = "attention" if "attention" in call.kernel else "matmul"
    here = traced.get((kernel.phase, kernel.step, call.module, kind), [])
    rivals = sum(c.extern and c.module == call.module and ("attention" in c.kernel) == (kind == "attention")
                 for c in calls[kernel.phase])  # fmt: skip
    fits = kind == "attention" or (
        len(here) == 1 and traced_ops[here[0]].op.rpartition("::")[2] in _SAME.get(call.kernel, ())
    )
    return here[0] if len(here) == 1 and rivals == 1 and fits else None


_SAME = {
    "aten::mm": ("mm", "addmm", "linear", "matmul"),
    "aten::addmm": ("mm", "addmm", "linear", "matmul"),
    "aten::bmm": ("bmm", "baddbmm", "matmul"),
    "aten::baddbmm": ("bmm", "baddbmm", "matmul"),
}
"""By a compiled product the names of traced ops that do the same work."""


def _found_ops(kineto: Kineto, calls: Mapping[str, list[Call]]) -> dict[int, Found]:
    """The ops of a CPU's recording that are kernels of the compiled graph, or look like one, by event."""
    ops = kineto.ops
    plain = ops["name"].astype(str).map(lambda n: _GRAPH.sub("", n))
    wanted = {phase: {c.kernel for c in some} for phase, some in calls.items()}
    parents = rows_of(kineto, ops["parent"]).tolist()
    in_unit = [False] * len(ops)
    unit = [False] * len(ops)
    places = zip(ops["phase"], ops["module"], plain, strict=True)
    for row, (phase, module, name) in enumerate(places):
        above = parents[row]
        if above >= 0 and in_unit[above]:
            in_unit[row] = True
        elif module == ROOT_MODULE and (name in wanted.get(phase, ()) or name.startswith("cpp_")):
            unit[row] = in_unit[row] = True
    chosen = ops[np.array(unit, bool)].sort_values("start_ns", kind="stable")
    return _assigned(chosen, plain, calls, ops_named=True)


def _found_kernels(kineto: Kineto, calls: Mapping[str, list[Call]]) -> dict[int, Found]:
    """The kernels of a GPU's recording that were launched by the model, by event."""
    kernels = kineto.kernels[(kineto.kernels["module"] == ROOT_MODULE) & (kineto.kernels["kind"] == "kernel")]
    ordered = kernels.sort_values(["launch_ns", "start_ns"], kind="stable", na_position="last")
    return _assigned(ordered, kernels["name"].astype(str), calls, ops_named=False)


def _assigned(
    units: pd.DataFrame, names: pd.Series[str], calls: Mapping[str, list[Call]], *, ops_named: bool
) -> dict[int, Found]:
    """Assign units (in launch order) to calls, forward by forward."""
    out: dict[int, Found] = {}
    place: Any
    for place, rows in units.groupby(["phase", "step"], sort=False):
        phase, step = place
        seen = [str(n) for n in names.loc[rows.index]]
        result = assign(calls.get(str(phase), []), seen, ops_named=ops_named)
        for event, some, alone, why in zip(rows["event"].tolist(), *result, strict=True):
            out[int(event)] = Found(str(phase), int(step), some, alone, why)
    return out


def _inside(kineto: Kineto, found: Mapping[int, Found]) -> dict[int, int]:
    """By event of an op the found one that it runs inside of."""
    out: dict[int, int] = {}
    parents = kineto.ops["parent"].astype("Int64").fillna(-1).astype("int64").tolist()
    for event, parent in zip(kineto.ops["event"].tolist(), parents, strict=True):
        if parent in found:
            out[event] = parent
        elif parent in out:
            out[event] = out[parent]
    return out


def coverage(kernels: pd.DataFrame, phase: str) -> dict[str, int]:
    """How far the kernels of a phase are known, in ns of its time: `module_ns` in a module (or the token choice),
    `phase_ns` in the phase only, `dispatch_ns` in the run time of compiled code. They are all of its kernels' time."""
    here = kernels[kernels["phase"] == phase]
    time_ns = here["time_ns"].astype("Int64") * here["count"].astype("Int64")
    lost = _lost(here)
    own = ~lost & here["reason"].astype("string").fillna("").str.startswith(WRAPPER).to_numpy(bool)
    return {
        "module_ns": int(time_ns[~lost & ~own].sum()),
        "phase_ns": int(time_ns[lost].sum()),
        "dispatch_ns": int(time_ns[own].sum()),
    }


def reasons_lost(kernels: pd.DataFrame, phase: str) -> list[str]:
    """Why kernels of a phase have no module: a line for each reason with kernels and time, most time first."""
    here = kernels[kernels["phase"] == phase]
    lost = here[_lost(here)]
    if not len(lost):
        return []
    sums = lost.assign(reason=lost["reason"].fillna("not known")).groupby("reason")["time_ns"].agg(["count", "sum"])
    ordered = sums.sort_values(by="sum", ascending=False, kind="stable")
    rows = zip(ordered.index, ordered.to_numpy().tolist(), strict=True)
    return [f"{int(n)} kernels, {ns / 1e6:.3f} ms: {why}" for why, (n, ns) in rows]


def _lost(kernels: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which kernels are known by phase only: without a module, or directly in a step and no traced op."""
    stray = kernels["reason"].astype("string").fillna("").str.startswith(NO_OP).to_numpy(bool)
    module = kernels["module"].astype("string")
    lost: npt.NDArray[np.bool_] = (module == UNATTRIBUTED).to_numpy(bool) | (
        stray & (module == ROOT_MODULE).to_numpy(bool)
    )
    return lost
