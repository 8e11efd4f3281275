"""Join what was recorded with what was traced: each recorded op gets the FLOPs and bytes of its traced op."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.parsers.kineto import Kineto
from kernelroof.parsers.schema import ROOT_MODULE, UNATTRIBUTED
from kernelroof.roofline.align import Forest, align
from kernelroof.roofline.match_rows import Ints, has_work, kernel_rows, op_rows, rows_of

if TYPE_CHECKING:
    from kernelroof.models.ops import TracedOp

_Scope = tuple[str, int, str]
"""Phase, step and recorded module: where a traced op may meet a recorded one."""


class Matched(NamedTuple):
    """The rows of one recording, and the traced ops that no row stands for.

    `rows` has the columns of `KEYS`, then kind, count, shapes, dtype, recorded_ns, flops,
    dram_read_bytes, dram_write_bytes, flops_source, bytes_source, time_source, reason, event, start_ns,
    thread, device, stream, group, group_flops, group_bytes. The group is the event of the recorded op
    that the row belongs to; its FLOPs and bytes stand on every row of the group, so that they are not
    lost where they can't be split over several kernels. They are null where nothing matched.
    """

    rows: pd.DataFrame
    unmatched_traced: list[TracedOp]


class _Ops(NamedTuple):
    """The recorded ops of one (phase, step, recorded module), in pre-order: rows of `Kineto.ops`."""

    rows: list[int]
    forest: Forest


def match(kineto: Kineto, traced_ops: Sequence[TracedOp]) -> Matched:
    """Match recorded ops to traced ones by phase, step, module, name and order.

    Where ranges are coarser than modules, a traced op is sought in the nearest recorded module above
    its own; the row gets the traced module. A matched op takes along whatever ran inside it; an op
    that contains matched ones is a wrapper with its own time only.

    On a recording of a CPU the rows are the ops in the phases and their `recorded_ns` add up to those
    ops' self times. With device work the rows are the kernels and copies launched in the phases, and a
    traced op is matched if its recorded op launched any, or has no work.
    """
    op_of = matched_ops(kineto, traced_ops)
    build = kernel_rows if len(kineto.kernels) else op_rows
    rows, used = build(kineto, traced_ops, op_of)
    return Matched(rows, [op for position, op in enumerate(traced_ops) if position not in used])


def matched_ops(kineto: Kineto, traced_ops: Sequence[TracedOp]) -> Ints:
    """For each recorded op the position of its traced op, or -1."""
    scopes = _recorded_scopes(kineto)
    traced = _traced_scopes(traced_ops, scopes)
    op_of = np.full(len(kineto.ops), -1, dtype=np.int64)
    memory: dict[tuple[Forest, tuple[str, ...], tuple[bool, ...]], list[int]] = {}
    for scope, positions in traced.items():
        if scope not in scopes:
            continue
        ops = scopes[scope]
        names = tuple(traced_ops[p].op for p in positions)
        work = tuple(has_work(traced_ops[p]) for p in positions)
        # Layers and steps repeat: each shape of the problem is solved once.
        key = ops.forest, names, work
        if key not in memory:
            memory[key] = align(*key)
        for position, node in zip(positions, memory[key], strict=True):
            if node >= 0:
                op_of[ops.rows[node]] = position
    return op_of


def _recorded_scopes(kineto: Kineto) -> dict[_Scope, _Ops]:
    """The recorded ops by scope; also the scopes of ranges in which no op ran."""
    ops = kineto.ops
    phases, modules = ops["phase"].tolist(), ops["module"].tolist()
    steps = ops["step"].fillna(-1).astype("int64").tolist()
    parents = rows_of(kineto, ops["parent"]).tolist()
    names = ops["name"].tolist()
    members: dict[_Scope, list[int]] = defaultdict(list)
    depth, size = [0] * len(ops), [1] * len(ops)
    scope_of = list(zip(phases, steps, modules, strict=True))
    for row, scope in enumerate(scope_of):
        if scope[0] == UNATTRIBUTED:
            continue
        members[scope].append(row)
        parent = parents[row]
        # An op whose parent ran in another module is at the top of its own.
        depth[row] = depth[parent] + 1 if parent >= 0 and scope_of[parent] == scope else 0
    for row in range(len(ops) - 1, -1, -1):
        if depth[row]:
            size[parents[row]] += size[row]
    ranges = kineto.ranges[kineto.ranges["step"].notna() & (kineto.ranges["module"] != UNATTRIBUTED)]
    empty = zip(ranges["phase"], ranges["step"].astype("int64"), ranges["module"], strict=True)
    scopes: dict[_Scope, list[int]] = {scope: [] for scope in empty} | members
    return {
        scope: _Ops(
            rows,
            Forest(tuple(names[r] for r in rows), tuple(size[r] for r in rows), tuple(depth[r] for r in rows)),
        )
        for scope, rows in scopes.items()
    }


def _traced_scopes(traced_ops: Sequence[TracedOp], recorded: Iterable[_Scope]) -> Mapping[_Scope, list[int]]:
    """Positions of the traced ops by the scope to seek them in, in their order."""
    known = set(recorded)
    nearest: dict[_Scope, _Scope] = {}
    out: dict[_Scope, list[int]] = defaultdict(list)
    for position in sorted(range(len(traced_ops)), key=lambda p: traced_ops[p].ordinal):
        op = traced_ops[position]
        scope = op.phase, op.step, op.module
        if scope not in nearest:
            nearest[scope] = _nearest(scope, known)
        out[nearest[scope]].append(position)
    return out


def _nearest(scope: _Scope, known: set[_Scope]) -> _Scope:
    phase, step, module = scope
    while module and (phase, step, module) not in known:
        module = module.rpartition(".")[0]
    return phase, step, module or ROOT_MODULE
