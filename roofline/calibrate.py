"""What a finished run teaches: how far each kind of kernel was from its roof, used for another workload or model.

Kernels are grouped by phase, kind of module and the roof that bounds them; a group's factor is its measured
time over its time at the run's own roofs. An op of another model then takes factor x its own ideal time, but
not less than the short kernels of its group took, and every launch brings the run's gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.models.errors import ReportError
from kernelroof.models.kinds import kind_of
from kernelroof.models.ops import TracedOp

_FLOOR_QUANTILE = 0.1
"""A group's kernels are taken to need at least what its fastest tenth needed: start-up does not shrink."""


class Group(NamedTuple):
    """Measured kernels of one kind under one roof."""

    factor: float
    """Measured time over ideal time."""
    floor_ns: float
    share: float
    """Of the phase's kernel time."""


class Calibration(NamedTuple):
    """Factors of one run; see the module."""

    model: str
    device: str
    dtype: str
    flop_s: float
    byte_s: float
    groups: Mapping[tuple[str, str, str], Group]
    """By phase, kind of module, and "compute" or "memory"."""
    phases: Mapping[str, Group]
    """The same over all kernels of a phase, for kinds that the run did not have."""
    gap_ns: Mapping[str, float]
    """Wall time besides kernels that do work, per such kernel: gaps, views, what was not matched."""
    error: Mapping[str, float]
    """Expected relative error of a phase, see `_error`."""


class Prediction(NamedTuple):
    """A phase of another model or workload by a run's factors; ns."""

    wall_ns: float
    kernels_ns: float
    gaps_ns: float
    ideal_ns: float
    error: float
    """Expected relative error: how much alike the run's kernels of one group were, and its repeats."""
    unknown_share: float
    """Of the kernels' time, in kinds that the run did not have."""


def calibration(
    identity: Mapping[str, Any], ceilings: Mapping[str, Any], wall: Mapping[str, Any], kernels: pd.DataFrame
) -> Calibration:
    """Learn from a run's run.json (its identity), ceilings.json, wall.json and kernels.csv.

    Raises:
        ReportError: the run has no kernel with both a time and a roof.
    """
    rows = kernels[(kernels["ideal_ns"] > 0) & (kernels["time_ns"] > 0)].copy()
    if rows.empty:
        raise ReportError("the run has no kernel with a time and a roof", "Calibrate by a run that placed its kernels.")
    compute_ns = rows["flops"] / ceilings["flop_s"] * 1e9
    rows["roof"] = np.where(compute_ns >= rows["ideal_ns"] * (1 - 1e-9), "compute", "memory")
    count = rows["count"]
    rows["measured"], rows["ideal"] = rows["time_ns"] * count, rows["ideal_ns"] * count
    totals = rows.groupby("phase")["measured"].sum()
    groups = {
        (str(phase), str(kind), str(roof)): _group(part, float(totals[phase]))
        for (phase, kind, roof), part in rows.groupby(["phase", "kind", "roof"])
    }
    phases = {str(phase): _group(part, float(totals[phase])) for phase, part in rows.groupby("phase")}
    launches = rows.groupby("phase")["count"].sum()
    return Calibration(
        model=str(identity["model"]),
        device=str(ceilings["name"]),
        dtype=str(identity["dtype"]),
        flop_s=float(ceilings["flop_s"]),
        byte_s=float(ceilings["byte_s"]),
        groups=groups,
        phases=phases,
        gap_ns={p: max(0.0, wall[p]["bare_ns"] - float(totals[p])) / float(launches[p]) for p in phases},
        error={p: _error(rows[rows["phase"] == p], groups, wall[p]) for p in phases},
    )


def predict(found: Calibration, ops: Iterable[TracedOp], phase: str) -> Prediction:
    """The wall time of a phase's ops (one prefill, or one decode step).

    Raises:
        ReportError: the run has no such phase.
    """
    if phase not in found.phases:
        raise ReportError(f"the run has no {phase}", "Calibrate by a whole run.")
    kernels = ideal_all = unknown = 0.0
    launches = 0
    for op in ops:
        moved = op.read_bytes + op.write_bytes
        if not (op.flops or moved):
            continue
        launches += 1
        compute, memory = op.flops / found.flop_s * 1e9, moved / found.byte_s * 1e9
        ideal = max(compute, memory)
        roof = "compute" if compute >= memory else "memory"
        kind = kind_of(op.module, op.op, op.role)
        group = found.groups.get((phase, kind, roof))
        time = _time(group or found.phases[phase], ideal)
        kernels, ideal_all = kernels + time, ideal_all + ideal
        if group is None:
            unknown += time
    gaps = launches * found.gap_ns[phase]
    share = unknown / kernels if kernels else 0.0
    return Prediction(kernels + gaps, kernels, gaps, ideal_all, found.error[phase], share)


def _time(group: Group, ideal_ns: Any) -> Any:
    return np.maximum(group.factor * ideal_ns, group.floor_ns)


def _group(rows: pd.DataFrame, phase_ns: float) -> Group:
    measured = float(rows["measured"].sum())
    floor_ns = float(rows["time_ns"].quantile(_FLOOR_QUANTILE))
    return Group(measured / float(rows["ideal"].sum()), floor_ns, measured / phase_ns)


def _error(rows: pd.DataFrame, groups: Mapping[tuple[str, str, str], Group], wall: Mapping[str, Any]) -> float:
    """Root of the squares of two shares of the phase's bare time.

    How far the run's own roles (one op in the same module of every layer) are from what their group's factor
    says, summed without their signs; and half the spread of the bare repeats.
    """
    apart = 0.0
    roles = rows["module"].astype(str).str.replace(r"\.\d+\.", ".*.", regex=True)
    for (kind, roof, _role, _op), part in rows.groupby(["kind", "roof", roles, "kernel"]):
        expected = _time(groups[str(rows["phase"].iloc[0]), str(kind), str(roof)], part["ideal_ns"]) * part["count"]
        apart += abs(float(expected.sum()) - float(part["measured"].sum()))
    spread = (wall["bare_max_ns"] - wall["bare_min_ns"]) / 2
    return float(np.hypot(apart, spread) / wall["bare_ns"])
