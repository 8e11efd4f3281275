"""What a finished run teaches: how far each kind of kernel was from its roof, used for another workload or model.

Kernels are grouped by phase, kind of module and the roof that bounds them; a group's factor is its measured
time over its time at the run's own roofs. An op of another model then takes factor x its own ideal time, but
not less than short kernels took, and every launch brings the run's gap. Where the run had no
such group (a larger batch turns a decode step's products from memory to compute), the other phase's kernels of
that kind under that roof stand in, then all of the phase under that roof, then all of the phase.

A factor is a mean over the sizes that the run had. Ops of other sizes may be nearer to their roof or further
from it, and may come from cache: the share of time in such ops is told beside the error, which does not cover it.
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
"""A kernel is taken to need at least what the fastest tenth of its group, or of its phase if that is less, needed:
start-up does not shrink. (A group of large kernels only, such as a prefill's products, knows nothing of start-up.)"""

_ALIKE = 2.0
"""An op is within the run's sizes if its ideal time is at most this many times outside the range of its group's."""


class Group(NamedTuple):
    """Measured kernels of one kind under one roof."""

    factor: float
    """Measured time over ideal time."""
    floor_ns: float
    share: float
    """Of the phase's kernel time."""
    least_ns: float
    most_ns: float
    """Range of the kernels' ideal times."""


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
    roofs: Mapping[tuple[str, str], Group]
    """By phase and roof, likewise."""
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
    outside_share: float
    """Of the kernels' time, in ops much smaller or larger than the run's of their kind."""


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
    floors = rows.groupby("phase")["time_ns"].quantile(_FLOOR_QUANTILE)

    def group(phase: Any, part: pd.DataFrame) -> Group:
        return _group(part, float(totals[phase]), float(floors[phase]))

    groups = {
        (str(phase), str(kind), str(roof)): group(phase, part)
        for (phase, kind, roof), part in rows.groupby(["phase", "kind", "roof"])
    }
    roofs = {(str(phase), str(roof)): group(phase, part) for (phase, roof), part in rows.groupby(["phase", "roof"])}
    phases = {str(phase): group(phase, part) for phase, part in rows.groupby("phase")}
    launches = rows.groupby("phase")["count"].sum()
    return Calibration(
        model=str(identity["model"]),
        device=str(ceilings["name"]),
        dtype=str(identity["dtype"]),
        flop_s=float(ceilings["flop_s"]),
        byte_s=float(ceilings["byte_s"]),
        groups=groups,
        phases=phases,
        roofs=roofs,
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
    kernels = ideal_all = unknown = outside = 0.0
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
        time = _time(group or _stand_in(found, phase, kind, roof), ideal)
        kernels, ideal_all = kernels + time, ideal_all + ideal
        if group is None:
            unknown += time
        elif not group.least_ns / _ALIKE <= ideal <= group.most_ns * _ALIKE:
            outside += time
    gaps = launches * found.gap_ns[phase]
    shares = (part / kernels if kernels else 0.0 for part in (unknown, outside))
    return Prediction(kernels + gaps, kernels, gaps, ideal_all, found.error[phase], *shares)


def _stand_in(found: Calibration, phase: str, kind: str, roof: str) -> Group:
    """What is nearest to a group that the run did not have; see the module. Start-up stays that of the phase."""
    whole = found.phases[phase]
    elsewhere = (found.groups.get((other, kind, roof)) for other in found.phases if other != phase)
    near = next((g for g in elsewhere if g is not None), found.roofs.get((phase, roof), whole))
    return near._replace(floor_ns=whole.floor_ns)


def _time(group: Group, ideal_ns: Any) -> Any:
    return np.maximum(group.factor * ideal_ns, group.floor_ns)


def _group(rows: pd.DataFrame, phase_ns: float, floor_ns: float) -> Group:
    measured, ideals = float(rows["measured"].sum()), rows["ideal_ns"]
    factor = measured / float(rows["ideal"].sum())
    floor_ns = min(floor_ns, float(rows["time_ns"].quantile(_FLOOR_QUANTILE)))
    return Group(factor, floor_ns, measured / phase_ns, float(ideals.min()), float(ideals.max()))


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
