"""Bring recorded times to the clock of the bare run, so that ops and gaps add up to its wall time exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.models.errors import ReportError
from kernelroof.parsers.kineto import Kineto
from kernelroof.roofline.match_rows import owners, rows_of
from kernelroof.roofline.waiting import OpGaps, idle_before

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class PhaseWall(NamedTuple):
    """Where the bare wall time of one phase went; all times in ns.

    `ops_ns + gap_ns - overlap_ns == bare_ns`, exactly. On a CPU nothing overlaps. On a GPU the ops
    are kernels at their recorded durations, the overlap is what ran at the same time as another
    kernel, and the gap is the rest of the bare wall time: it is negative if the recorded kernels
    alone took longer than the whole bare run, which says that the two runs differ.
    """

    bare_ns: int
    """The truth: median prefill, or the sum over decode steps of each step's median over repeats."""
    bare_min_ns: int
    """The fastest repeat's total."""
    bare_max_ns: int
    repeats: int
    step_ns: tuple[int, ...]
    """Median of each decode step; empty for the prefill."""
    recorded_ns: int
    """Wall time of the phase as recorded, with profiler and ranges."""
    dilation_ns: int
    """recorded_ns - bare_ns."""
    charged_ns: int
    """Part of the dilation that was taken off where the profiler's own work per event fell; 0 on a GPU."""
    factor: float
    """Scale from the rest of the recorded time to the bare one; 1.0 on a GPU, whose durations are true."""
    ops_ns: int
    gap_ns: int
    overlap_ns: int
    coverage_pct: float
    """100 * (ops_ns - overlap_ns) / bare_ns."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, ready for JSON."""
        return {**self._asdict(), "step_ns": list(self.step_ns)}


class BareTime(NamedTuple):
    """The bare wall time of one phase, in ns; see `PhaseWall`."""

    wall_ns: int
    low_ns: int
    high_ns: int
    repeats: int
    step_ns: tuple[int, ...]


def reconcile(
    rows: pd.DataFrame, kineto: Kineto, bare: Mapping[str, Any], costs: Mapping[str, float]
) -> tuple[pd.DataFrame, dict[str, PhaseWall]]:
    """Add `time_ns` to the rows of `match`: their recorded times on the bare run's clock; and `idle_before_ns`.

    On a CPU, per phase: the profiler's work for an event falls into what contains the event, so each
    op takes `op_ns` and each range `range_ns` off the self time of the op around it, or off the gap
    where there is none; nothing goes below zero, and no more is taken off than the recording was slower than
    the bare run. What remains of ops and gap is scaled by one factor
    to the bare wall time. Scaling alone would also shrink the long matrix products, which hold few
    events, and show them faster than they are. Rounding is by largest remainders: the sum is exact.

    On a GPU durations are true: `time_ns` is `recorded_ns`.

    `idle_before_ns` is the time right before a row in which no op ran (CPU: scaled like `gap_ns`, whose part after the
    last op is no row's) or no kernel ran (GPU: as recorded).

    Args:
        bare: `prefill_ns`, one per repeat; `decode_step_ns`, for each repeat one per step.
        costs: `op_ns` and `range_ns`, what recording adds per op and per range.

    Returns:
        The rows with `time_ns` and `idle_before_ns`, and by phase the account of its wall time.

    Raises:
        ReportError: a phase or a number of steps that only one of the two runs has.
    """
    truths = bare_times(bare)
    recorded = set(rows["phase"]) | set(kineto.ranges["name"][kineto.ranges["level"] == "phase"])
    if recorded != set(truths):
        raise ReportError(f"the recording has {_names(recorded)}, the bare run {_names(truths)}", "Run both again.")
    on_gpu = len(kineto.kernels) > 0
    charges = np.zeros(len(rows)) if on_gpu else _charges(rows, kineto, costs)
    time_ns = rows["recorded_ns"].to_numpy(dtype=np.int64).copy()
    idle_ns = np.zeros(len(rows), dtype=np.int64)
    walls = {}
    for phase, truth in truths.items():
        _check_steps(phase, kineto, truth)
        here = (rows["phase"] == phase).to_numpy()
        if on_gpu:
            walls[phase], idle_ns[here] = _gpu_wall(rows[here], kineto, phase, truth)
        else:
            gaps = OpGaps(kineto, phase, costs)
            wall_ns = _recorded_wall(kineto, phase)
            time_ns[here], walls[phase], charged = _cpu_wall(time_ns[here], charges[here], gaps.cost_ns, wall_ns, truth)
            idle_ns[here] = gaps.before(rows["event"][here], walls[phase].gap_ns, charged)
    times = {"time_ns": pd.array(time_ns, dtype="Int64"), "idle_before_ns": pd.array(idle_ns, dtype="Int64")}
    return rows.assign(**times), walls


def bare_times(bare: Mapping[str, Any]) -> dict[str, BareTime]:
    """The bare wall time of each phase that was run, from the content of bare.json.

    Raises:
        ReportError: repeats of unequal length, or a phase that took no time.
    """
    truths: dict[str, BareTime] = {}
    prefill: Sequence[float] = bare.get("prefill_ns") or []
    if prefill:
        truths["prefill"] = BareTime(round(median(prefill)), round(min(prefill)), round(max(prefill)), len(prefill), ())
    repeats: Sequence[Sequence[float]] = bare.get("decode_step_ns") or []
    if repeats and repeats[0]:
        if len({len(steps) for steps in repeats}) > 1:
            raise ReportError("the bare run's repeats differ in their number of decode steps", "Run it again.")
        steps = tuple(round(median(step)) for step in zip(*repeats, strict=True))
        totals = [sum(step) for step in repeats]
        truths["decode"] = BareTime(sum(steps), round(min(totals)), round(max(totals)), len(repeats), steps)
    for phase, truth in truths.items():
        if truth.wall_ns <= 0:
            raise ReportError(f"the bare run's {phase} took {truth.wall_ns} ns", "Run it again.")
    return truths


def _check_steps(phase: str, kineto: Kineto, truth: BareTime) -> None:
    ranges = kineto.ranges
    steps = ranges["step"][(ranges["phase"] == phase) & (ranges["level"] == "step")].nunique()
    if truth.step_ns and steps not in (0, len(truth.step_ns)):
        raise ReportError(
            f"the recording has {steps} {phase} steps, the bare run {len(truth.step_ns)}", "Run both again."
        )


def _recorded_wall(kineto: Kineto, phase: str) -> int:
    ranges = kineto.ranges
    return int(ranges["dur_ns"][(ranges["level"] == "phase") & (ranges["phase"] == phase)].sum())


def _charges(rows: pd.DataFrame, kineto: Kineto, costs: Mapping[str, float]) -> Floats:
    """What recording added to each row: the events directly inside its op or an op that it took along."""
    ops = kineto.ops
    events = ops["children"].to_numpy() * max(costs["op_ns"], 0.0)
    events = events + ops["ranges_inside"].to_numpy() * max(costs["range_ns"], 0.0)
    row_op = rows_of(kineto, rows["event"])
    has_row = np.zeros(len(ops), dtype=bool)
    has_row[row_op] = True
    owner = owners(kineto, has_row)
    owned = owner >= 0
    by_op: Floats = np.bincount(owner[owned], weights=events[owned], minlength=len(ops)).astype(np.float64)
    return by_op[row_op]


def _cpu_wall(
    recorded: Ints, charges: Floats, gap_charge: float, wall_ns: int, truth: BareTime
) -> tuple[Ints, PhaseWall, float]:
    """Times on the bare run's clock, the account, and which part of the charges was taken off."""
    gap = max(wall_ns - int(recorded.sum()), 0)
    parts = np.append(recorded, gap).astype(np.float64)
    # What can be charged is bounded twice: by each container's own time, and by the dilation seen in all.
    off = np.minimum(np.append(charges, gap_charge), parts)
    allowed = max(float(parts.sum()) - truth.wall_ns, 0.0)
    charged = min(1.0, allowed / float(off.sum()) if off.sum() > 0 else 0.0)
    rest = parts - off * charged
    total = float(rest.sum())
    factor = truth.wall_ns / total if total > 0 else 1.0
    # With no recorded time at all, the whole phase is gap.
    scaled = _round_to(rest * factor, truth.wall_ns) if total > 0 else np.append(recorded * 0, truth.wall_ns)
    ops_ns = int(scaled[:-1].sum())
    wall = phase_wall(truth, wall_ns, round(float((parts - rest).sum())), factor, ops_ns, int(scaled[-1]), overlap_ns=0)
    return scaled[:-1], wall, charged


def _gpu_wall(rows: pd.DataFrame, kineto: Kineto, phase: str, truth: BareTime) -> tuple[PhaseWall, Ints]:
    start = rows["start_ns"].to_numpy(dtype=np.int64)
    end = start + rows["recorded_ns"].to_numpy(dtype=np.int64)
    ops_ns = int((end - start).sum())
    busy_ns = union_ns(start, end)
    ranges = kineto.ranges[(kineto.ranges["level"] == "phase") & (kineto.ranges["phase"] == phase)]
    begun = int(ranges["start_ns"].min())
    # The device works on what an earlier phase launched until then.
    earlier = kineto.kernels[(kineto.kernels["launch_ns"] < begun).fillna(True).astype(bool)]
    begun = max(begun, int((earlier["start_ns"] + earlier["dur_ns"]).max()) if len(earlier) else begun)
    ended = max(int((ranges["start_ns"] + ranges["dur_ns"]).max()), int(end.max(initial=0)))
    wall = phase_wall(truth, ended - begun, 0, 1.0, ops_ns, truth.wall_ns - busy_ns, ops_ns - busy_ns)
    return wall, idle_before(start, end, begun)


def phase_wall(
    truth: BareTime, wall_ns: int, charged_ns: int, factor: float, ops_ns: int, gap_ns: int, overlap_ns: int
) -> PhaseWall:
    """The account of a phase whose recorded wall time is `wall_ns`; see `PhaseWall`."""
    return PhaseWall(
        bare_ns=truth.wall_ns,
        bare_min_ns=truth.low_ns,
        bare_max_ns=truth.high_ns,
        repeats=truth.repeats,
        step_ns=truth.step_ns,
        recorded_ns=wall_ns,
        dilation_ns=wall_ns - truth.wall_ns,
        charged_ns=charged_ns,
        factor=factor,
        ops_ns=ops_ns,
        gap_ns=gap_ns,
        overlap_ns=overlap_ns,
        coverage_pct=100.0 * (ops_ns - overlap_ns) / truth.wall_ns,
    )


def _round_to(values: Floats, total: int) -> Ints:
    """Integers next to these values that sum up to `total`, the largest remainders rounded up."""
    whole = np.floor(values).astype(np.int64)
    missing = total - int(whole.sum())
    # More than one each only if the values don't add up to the total: float noise of a long sum.
    whole += missing // len(values)
    order = np.argsort(-(values - np.floor(values)), kind="stable")
    whole[order[: missing % len(values)]] += 1
    return whole


def union_ns(start: Ints, end: Ints) -> int:
    """Length of the union of intervals."""
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    before = np.append(start[0], reached[:-1])
    return int(np.maximum(reached - np.maximum(start, before), 0).sum())


def _names(phases: set[str] | Mapping[str, Any]) -> str:
    return " and ".join(sorted(phases)) or "no phase"
