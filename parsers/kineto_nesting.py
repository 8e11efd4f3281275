"""Which op and which range enclose each host event, and what a range's name stands for."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from kernelroof.parsers.schema import ROOT_MODULE, SAMPLE_MODULE, UNATTRIBUTED

PHASES = ("prefill", "decode")
NO_STEP = -1
STEP = re.compile(r"step(\d{1,9})")
"""Name of the range of a step; a longer number is another's."""
# Frameworks open ranges of their own ("nccl:all_reduce", "Torch-Compiled Region: 0/0") inside a module.
_MODULE = re.compile(rf"[A-Za-z0-9_.]+|{re.escape(ROOT_MODULE)}|{re.escape(SAMPLE_MODULE)}")

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Nesting(NamedTuple):
    """For each host event: the positions of the innermost op and range around it, or -1.

    `own_ns` is the duration without that of the ops directly inside (of a range: without that of
    the ops that have no op between them and the range).
    """

    op: Ints
    range: Ints
    own_ns: Ints


class Labels(NamedTuple):
    """For each range, outermost first: its path of names and what work directly in it belongs to.

    `level` says what the range itself is: "phase", "step", "module" or "other".
    """

    path: list[str]
    level: list[str]
    phase: list[str]
    step: Ints
    module: list[str]


def preorder(thread: Ints, start_ns: Ints, dur_ns: Ints) -> Ints:
    """Order by thread and start, an enclosing event before what it encloses; ties keep the order given."""
    return np.lexsort((-dur_ns, start_ns, thread))


def nest(thread: Ints, start_ns: Ints, dur_ns: Ints, is_op: Flags, is_range: Flags) -> Nesting:
    """Find what encloses each host event, given in `preorder`.

    An event belongs to what is open on its thread when it starts. One that ends after its parent
    (clock noise in old recordings) is charged to the parent only up to the parent's end.
    """
    n = len(start_ns)
    op_of, range_of = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    own = dur_ns.astype(np.int64, copy=True)
    # Event i opens after all before it: those still open are found with a stack, per thread.
    open_until: list[int] = []
    open_op: list[int] = []
    open_range: list[int] = []
    now = -1
    ends = (start_ns + dur_ns).tolist()
    rows = zip(thread.tolist(), start_ns.tolist(), ends, is_op.tolist(), is_range.tolist(), strict=True)
    for i, (on, start, end, op, a_range) in enumerate(rows):
        if on != now:
            now = on
            open_until, open_op, open_range = [], [], []
        while open_until and open_until[-1] <= start:
            open_until.pop()
            open_op.pop()
            open_range.pop()
        inner_op, inner_range = (open_op[-1], open_range[-1]) if open_until else (-1, -1)
        if inner_op >= 0:
            op_of[i] = inner_op
        if inner_range >= 0:
            range_of[i] = inner_range
        if op or a_range:
            open_until.append(end)
            open_op.append(i if op else inner_op)
            open_range.append(i if a_range else inner_range)
    child = np.flatnonzero(is_op & (op_of >= 0))
    parent = op_of[child]
    inside = np.minimum(start_ns[child] + dur_ns[child], start_ns[parent] + dur_ns[parent]) - start_ns[child]
    np.subtract.at(own, parent, inside)
    return Nesting(op_of, range_of, np.maximum(own, 0))


def label_ranges(names: list[str], parents: Ints) -> Labels:
    """Read the phase, step and module of each range from its name and the ranges around it.

    Args:
        names: one per range, outermost first.
        parents: position of the enclosing range, or -1; always before its children.

    A range named like a phase, outside any phase, is one; `step<k>` directly inside a phase is a
    step; inside a step, a name that can be a module path is a module. The prefill is step 0.
    """
    out = Labels([], [], [], np.full(len(names), NO_STEP, dtype=np.int64), [])
    for i, (name, parent) in enumerate(zip(names, parents.tolist(), strict=True)):
        path, level, phase, step, module = name, "other", UNATTRIBUTED, NO_STEP, UNATTRIBUTED
        above = "other"
        if parent >= 0:
            path = f"{out.path[parent]}/{name}"
            above, phase, module = out.level[parent], out.phase[parent], out.module[parent]
            step = int(out.step[parent])
        if phase == UNATTRIBUTED:
            if name in PHASES:
                level, phase, step = "phase", name, 0 if name == "prefill" else NO_STEP
        elif above == "phase" and (found := STEP.fullmatch(name)):
            level, step, module = "step", 0 if phase == "prefill" else int(found[1]), ROOT_MODULE
        elif module != UNATTRIBUTED and _MODULE.fullmatch(name):
            level, module = "module", name
        out.path.append(path)
        out.level.append(level)
        out.phase.append(phase)
        out.step[i] = step
        out.module.append(module)
    return out
