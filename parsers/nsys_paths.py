"""Range names to phase, step, module and a path.

The ranges around a point make a path of names, outermost first. Points share few paths, so paths are
kept as a tree and what a path means is worked out once for each. The rules for meaning:
- phase: the first range named `prefill` or `decode`;
- step: the first range named `step<number>` inside the phase;
- module: the last range inside the phase, after the step, whose name is a dotted path of identifiers
  or `(sample)`, in NVTX's default domain (libraries' ranges are in domains of their own).
Any other program's ranges keep their path and have no phase.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.parsers.kineto_nesting import STEP
from kernelroof.parsers.nsys_attribution import Cover
from kernelroof.parsers.nsys_schema import Ints
from kernelroof.parsers.schema import ROOT_MODULE, SAMPLE_MODULE, UNATTRIBUTED

PHASES = ("prefill", "decode")
UNNAMED = "(unnamed)"
"""Stands in paths for a range whose name was not recorded."""

_MODULE = re.compile(r"[^\W\d]\w*(\.\w+)*")


class RangeNames(NamedTuple):
    """Names of ranges: range r is called `names[code[r]]` and is in the default domain or another."""

    names: list[str]
    code: Ints
    foreign: npt.NDArray[np.bool_]


class Paths(NamedTuple):
    """Distinct paths; entry 0 is the empty one. Parents come before their children.

    step is -1 and module and phase are `UNATTRIBUTED` where there is none.
    """

    parent: Ints
    path: npt.NDArray[np.object_]
    phase: npt.NDArray[np.object_]
    step: Ints
    module: npt.NDArray[np.object_]


class Located(NamedTuple):
    """For each group of a Cover its path, and the ranges that made it phase and step (-1: none)."""

    path: Ints
    phase_range: Ints
    step_range: Ints


def locate(found: Cover, names: RangeNames) -> tuple[Paths, Located]:
    """Make the tree of paths of a cover, level by level, and place every group in it."""
    # Names of foreign domains are other names: they can't be modules.
    codes = np.where(names.foreign, names.code + len(names.names), names.code)
    is_phase, step_number, is_module = _roles(names.names)
    groups = len(found.offsets) - 1
    depth = np.diff(found.offsets)
    at = Located(np.zeros(groups, np.int64), np.full(groups, -1), np.full(groups, -1))
    parents, labels = [np.array([-1])], [np.array([0])]
    phase, step, module = [np.array([-1])], [np.array([-1])], [np.array([-1])]
    size, level_base = 1, 0
    known_phase, known_step, known_module = phase[0], step[0], module[0]
    for level in range(int(depth.max(initial=0))):
        active = np.flatnonzero(depth > level)
        row = found.ranges[found.offsets[active] + level]
        parent = at.path[active]
        pair = parent * (2 * len(names.names)) + codes[row]
        number, distinct = pd.factorize(pair)
        new_parent, label = np.divmod(np.asarray(distinct), 2 * len(names.names))
        foreign, label = np.divmod(label, len(names.names))

        above = new_parent - level_base
        new_phase, new_step, new_module = known_phase[above], known_step[above], known_module[above]
        begins = (new_phase < 0) & is_phase[label]
        steps = (new_phase >= 0) & (new_step < 0) & (step_number[label] >= 0)
        names_module = (new_phase >= 0) & ~steps & is_module[label] & (foreign == 0)
        new_phase = np.where(begins, label, new_phase)
        new_step = np.where(steps, step_number[label], new_step)
        new_module = np.where(steps, -1, np.where(names_module, label, new_module))

        at.phase_range[active] = np.where(begins[number], row, at.phase_range[active])
        at.step_range[active] = np.where(steps[number], row, at.step_range[active])
        at.path[active] = size + number
        parents.append(new_parent)
        labels.append(label)
        phase.append(new_phase)
        step.append(new_step)
        module.append(new_module)
        known_phase, known_step, known_module = new_phase, new_step, new_module
        level_base = size
        size += len(distinct)
    words = np.array([*names.names, UNATTRIBUTED], dtype=object)
    phases, modules = np.concatenate(phase), np.concatenate(module)
    module_name = words[modules]
    module_name[(phases >= 0) & (modules < 0)] = ROOT_MODULE
    return (
        Paths(
            np.concatenate(parents), _texts(parents, labels, words), words[phases], np.concatenate(step), module_name
        ),
        at,
    )


def _texts(parents: list[Ints], labels: list[Ints], words: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    """The paths spelled out, a level at a time; entry 0 is empty."""
    levels = [np.array([""], dtype=object)]
    base = 0
    for level, (parent, label) in enumerate(zip(parents[1:], labels[1:], strict=True)):
        above = levels[-1][parent - base]
        levels.append(words[label] if level == 0 else above + "/" + words[label])
        base += len(levels[-2])
    return np.concatenate(levels)


def _roles(names: list[str]) -> tuple[npt.NDArray[np.bool_], Ints, npt.NDArray[np.bool_]]:
    """Of each name: whether it is a phase, its step number or -1, whether it can be a module."""
    steps = [STEP.fullmatch(name) for name in names]
    return (
        np.array([name in PHASES for name in names], bool),
        np.array([int(m.group(1)) if m else -1 for m in steps], np.int64),
        np.array([name == SAMPLE_MODULE or _MODULE.fullmatch(name) is not None for name in names], bool),
    )
