"""Which op and which range enclose each host event, and what a range's name stands for."""

from __future__ import annotations

import re
from functools import lru_cache
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
    opens = is_op | is_range
    around = _last_open(thread, start_ns, np.where(opens, start_ns + dur_ns, start_ns))
    op_of, range_of = _climb(around, is_op), _climb(around, is_range)
    own = dur_ns.astype(np.int64, copy=True)
    child = np.flatnonzero(is_op & (op_of >= 0))
    parent = op_of[child]
    inside = np.minimum(start_ns[child] + dur_ns[child], start_ns[parent] + dur_ns[parent]) - start_ns[child]
    np.subtract.at(own, parent, inside)
    return Nesting(op_of, range_of, np.maximum(own, 0))


def _last_open(thread: Ints, start_ns: Ints, end_ns: Ints) -> Ints:
    """For each event, the last one before it on its thread that ends after its start; -1 where none does."""
    found = np.arange(-1, len(thread) - 1, dtype=np.int64)
    found[1:][thread[1:] != thread[:-1]] = -1
    left = np.flatnonzero(found >= 0)
    while len(left):
        left = left[end_ns[found[left]] <= start_ns[left]]
        # What an event passes over has ended at its start, and so at that of every later one, which may
        # pass over it too: all that are left go on from where the one that they stand at has come.
        found[left] = found[found[left]]
        left = left[found[left] >= 0]
    return found


def _climb(around: Ints, wanted: Flags) -> Ints:
    """For each event, the first wanted one on its way up; -1 where there is none."""
    found: Ints = around.copy()
    left = np.flatnonzero(found >= 0)
    while len(left):
        left = left[~wanted[found[left]]]
        found[left] = around[found[left]]
        left = left[found[left] >= 0]
    return found


def label_ranges(names: list[str], parents: Ints) -> Labels:
    """Read the phase, step and module of each range from its name and the ranges around it.

    Args:
        names: one per range, outermost first.
        parents: position of the enclosing range, or -1; always before its children.

    A range named like a phase, outside any phase, is one; `step<k>` directly inside a phase is a
    step; inside a step, a name that can be a module path is a module. The prefill is step 0.
    """
    paths: list[str] = []
    levels: list[str] = []
    phases: list[str] = []
    steps: list[int] = []
    modules: list[str] = []
    for name, parent in zip(names, parents.tolist(), strict=True):
        path, level, phase, step, module = name, "other", UNATTRIBUTED, NO_STEP, UNATTRIBUTED
        above = "other"
        if parent >= 0:
            path = f"{paths[parent]}/{name}"
            above, phase, step, module = levels[parent], phases[parent], steps[parent], modules[parent]
        if phase == UNATTRIBUTED:
            if name in PHASES:
                level, phase, step = "phase", name, 0 if name == "prefill" else NO_STEP
        elif above == "phase" and (found := STEP.fullmatch(name)):
            level, step, module = "step", 0 if phase == "prefill" else int(found[1]), ROOT_MODULE
        elif module != UNATTRIBUTED and _is_module(name):
            level, module = "module", name
        paths.append(path)
        levels.append(level)
        phases.append(phase)
        steps.append(step)
        modules.append(module)
    return Labels(paths, levels, phases, np.array(steps, dtype=np.int64), modules)


@lru_cache(maxsize=1 << 14)
def _is_module(name: str) -> bool:
    return _MODULE.fullmatch(name) is not None
