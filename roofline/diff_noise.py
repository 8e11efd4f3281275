"""What counts as a change between two runs: more than they differ by themselves.

A line must differ both in its time and in the median over its recordings and steps, which a single disturbed step
does not move. Three sources of difference that is no change are weighed, each from the runs' own repeats:

- a line's own spread: the medians of its time in each recording, the steps around them, and what the phase's bare
  repeats differ by;
- the drift of the whole machine between the runs (all lines slower alike), told by lines that launch the same kernels
  for the same work in both. It is reported by itself and taken out, where the set-ups are the same. Where such lines
  disagree, a drift counts only as far as four fifths of them had it, lest one module that most time goes to, and that
  did change, passes for the machine. Not all work feels a busy machine alike: a line may have drifted fully, in
  part or not at all, and only what lies beyond that range can be a change;
- what unchanged lines differ by after that: the middle deviation of the lines' ratios. A hundred lines are looked at,
  so a line must stand out by four of these; few lines that did change do not move a median.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.roofline.place import numbers

SIGMAS = 4.0
"""A line must differ by so many standard deviations."""
LEAST_PCT = 5.0
"""Never called a change: less than this of a line's own time ..."""
LEAST_SHARE_PCT = 1.0
"""... or of the phase's wall time."""
MOST_SIGMA_PCT = 6.0
"""Lines' own differences count as noise up to this: beyond, they are changes, whatever their number."""
LEAST_WALL_PCT = 2.0
"""Never called a change of a phase: less than this of its wall time."""
_MAD_TO_SIGMA = 1.4826
_NAMED_SHARE = 0.005
_SAME_WORK = 0.005
"""Launches, FLOPs and bytes of a line that differ by less than this share are the same work."""
_OUTSIDE = 0.2
"""Share of the lines on either side that a drift doesn't have to hold for."""
_MOST = 0.7
"""Share of the lines that must lie together for their middle to be the machine's drift."""
_LINES = 3.0
"""A line must differ by this part of the phase's own floor: of several lines none is known so much better."""
_ALIKE = 0.1
"""Lines whose ratios (log) are so near to one of them drifted alike."""
_SPREADS = 1.5
"""A phase's floor, in spreads: of three repeats, half their range falls short of what the next would differ by."""


class Wall(NamedTuple):
    """Bare wall times of a phase in one run, per forward."""

    median_ns: float
    low_ns: float
    high_ns: float

    @property
    def spread_pct(self) -> float:
        """Half of what repeats lie apart, in per cent."""
        return 50 * (self.high_ns - self.low_ns) / self.median_ns if self.median_ns else 0.0


class PhaseChange(NamedTuple):
    """What became of a phase's wall time."""

    a_ns: float
    b_ns: float
    change_pct: float
    noise_pct: float
    noise_from: str
    """what that floor comes from"""
    drift_pct: float
    """by how much all lines are slower alike"""
    changed: bool


def line_samples(steps: pd.DataFrame, lines: Mapping[tuple[str, str, str], tuple[str, str]]) -> pd.DataFrame:
    """Time of each line in each recording and step: `phase`, `module`, `kind`, `recording`, `step`, `time_ns`.

    Args:
        steps: repeats.csv (`spread.role_steps`).
        lines: (phase, role, kind) -> (module, kind) of its line.
    """
    units = zip(steps["phase"].astype(str), steps["role"].astype(str), steps["kind"].astype(str), strict=True)
    where = [lines.get(unit, unit[1:]) for unit in units]
    work = steps.assign(module=[w[0] for w in where], kind=[w[1] for w in where])
    keys = ["phase", "module", "kind", "recording", "step"]
    sums: pd.DataFrame = work.groupby(keys, sort=False)["time_ns"].sum().reset_index()
    return sums


def own_noise(samples: pd.DataFrame) -> dict[tuple[str, str, str], float]:
    """Standard deviation of a line's time per forward, in ns, by (phase, module, kind).

    Of its recordings' medians where there are several (half their range stands for it), and of the steps' median.
    """
    found: dict[tuple[str, str, str], float] = {}
    for key, group in samples.groupby(["phase", "module", "kind"], sort=False):
        by_recording = group.groupby("recording")["time_ns"]
        medians = by_recording.median().to_numpy(np.float64)
        rest = (group["time_ns"] - by_recording.transform("median")).to_numpy(np.float64)
        of_steps = _MAD_TO_SIGMA * float(np.median(np.abs(rest))) / np.sqrt(max(1, len(rest)))
        between = float(medians.max() - medians.min()) / 2 if len(medians) > 1 else 0.0
        phase, module, kind = (str(k) for k in key)
        found[phase, module, kind] = float(np.hypot(of_steps, between))
    return found


def typical(samples: pd.DataFrame) -> dict[tuple[str, str, str], float]:
    """Median time of a line over all recordings and steps, in ns, by (phase, module, kind)."""
    medians = samples.groupby(["phase", "module", "kind"], sort=False)["time_ns"].median()
    keys = (tuple(str(part) for part in key) for key in medians.index)
    return {(p, m, k): float(ns) for (p, m, k), ns in zip(keys, medians.tolist(), strict=True)}


def judged(
    lines: pd.DataFrame,
    walls: Mapping[str, tuple[Wall, Wall]],
    noise: Sequence[Mapping[tuple[str, str, str], float]],
    medians: Sequence[Mapping[tuple[str, str, str], float]],
    *,
    same_setup: bool,
    same_work: bool = True,
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Lines with what changed in them, and by phase the drift of all lines in per cent.

    Args:
        lines: of `diff.aligned`.
        walls: bare wall times of A and B by phase; empty for runs without.
        noise: of `own_noise`, of A and of B.
        medians: of `typical`, of A and of B; a line without one is judged by its time alone.
        same_setup: whether the runs are of one set-up, so that lines slower alike are the machine's doing.
        same_work: whether they did the same work; else a line takes more or less time, but is no slower or faster.

    Returns:
        `lines` with `delta_ns` (B - A per forward, a missing side counting 0), `expected_ns` (what drift alone would
        make of A's time), `noise_ns` (what B may differ from that by itself), `changed` and `says`; and the drift by
        phase, without an entry where no line tells it.
    """
    out = lines.copy()
    time_a, time_b = numbers(out["a_time_ns"]), numbers(out["b_time_ns"])
    both = (time_a > 0) & (time_b > 0)
    drift: dict[str, float] = {}
    expected, floor = np.nan_to_num(time_a), np.zeros(len(out))
    phases = out["phase"].astype(str).to_numpy()
    keys = list(zip(phases, out["module"].astype(str), out["kind"].astype(str), strict=True))
    usual_a, usual_b = (np.array([found.get(key, np.nan) for key in keys]) for found in medians)
    both_usual = (usual_a > 0) & (usual_b > 0)
    ratio = np.where(both_usual, usual_b, np.where(both, time_b, 1.0))
    ratio = ratio / np.where(both_usual, usual_a, np.where(both, time_a, 1.0))
    drifted = np.ones(len(out))
    alike = _same_work(out)
    for phase in dict.fromkeys(phases):
        here = phases == phase
        total = walls[phase][0].median_ns if phase in walls else float(np.nansum(time_a[here]))
        size = np.where(here & both, np.minimum(np.nan_to_num(time_a), np.nan_to_num(time_b)), 0.0)
        big = (size > _NAMED_SHARE * total) & alike
        logs = np.log(ratio)
        middle = _common(logs[big], np.sqrt(size[big])) if same_setup and big.any() else 0.0
        if big.any() or not same_setup:
            drift[phase] = 100 * (float(np.exp(middle)) - 1)
        drifted = np.where(here, np.exp(middle), drifted)
        expected = np.where(here, expected * np.exp(middle), expected)
        apart = _MAD_TO_SIGMA * float(np.median(np.abs(logs[big] - middle))) if big.sum() > 2 else 0.0
        sigma = min(100 * apart, MOST_SIGMA_PCT) / 100 if same_setup else 0.0
        own = np.array([float(np.hypot(noise[0].get(key, 0.0), noise[1].get(key, 0.0))) for key in keys])
        most = np.fmax(np.nan_to_num(time_a), np.nan_to_num(time_b))
        least = np.maximum(LEAST_PCT / 100 * most, LEAST_SHARE_PCT / 100 * total)
        if phase in walls:  # where whole repeats differ by so much, no line is known better
            spread = sum(w.spread_pct for w in walls[phase]) / 100
            least = np.maximum(least, np.maximum(spread * expected, _SPREADS / _LINES * spread * total))
        floor = np.where(here, np.maximum(least, SIGMAS * np.hypot(sigma * most, own)), floor)
    out["delta_ns"] = np.nan_to_num(time_b) - np.nan_to_num(time_a)
    out["expected_ns"], out["noise_ns"] = expected, floor
    beyond = _beyond(np.nan_to_num(time_a), np.nan_to_num(time_b), drifted)
    usual = np.where(both_usual, _beyond(np.nan_to_num(usual_a), np.nan_to_num(usual_b), drifted), beyond)
    out["changed"] = (np.abs(beyond) > floor) & (np.abs(usual) > floor) & (np.sign(beyond) == np.sign(usual))
    words = ("faster", "slower") if same_work else ("less time", "more time")
    out["says"] = [_says(a, b, d, c, words) for a, b, d, c in zip(time_a, time_b, beyond, out["changed"], strict=True)]
    return out, drift


def phase_change(
    wall: tuple[Wall, Wall], drift_pct: float | None, roofs_pct: float, *, same_setup: bool
) -> PhaseChange:
    """Whether a phase's wall time changed.

    What all lines drifted by alike is the machine's doing, and the phase may have felt all or none of it.

    Args:
        drift_pct: of `judged`; 0 for runs of other set-ups; None where no line tells it.
        roofs_pct: how far the measured roofs of the two runs differ, at most: the machine may have drifted by as much,
            where nothing else tells.
    """
    a, b = wall
    change = 100 * (b.median_ns - a.median_ns) / a.median_ns if a.median_ns else 0.0
    floors = {
        "the least that counts": LEAST_WALL_PCT,
        "repeats within each run": _SPREADS * (a.spread_pct + b.spread_pct),
        "measured roofs of the two runs": abs(roofs_pct) if same_setup and drift_pct is None else 0.0,
    }
    drift_pct = drift_pct or 0.0
    source = max(floors, key=lambda name: floors[name])
    noise = floors[source]
    beyond = change - min(max(change, min(0.0, drift_pct)), max(0.0, drift_pct))
    return PhaseChange(a.median_ns, b.median_ns, change, noise, source, drift_pct, abs(beyond) > noise)


def _beyond(a: Any, b: Any, drifted: Any) -> Any:
    """How far B is outside of what A, and A with all of the drift, would be."""
    return b - np.clip(b, np.fmin(a, a * drifted), np.fmax(a, a * drifted))


def _says(a: float, b: float, beyond: float, changed: Any, words: tuple[str, str]) -> str:
    if np.isnan(a) or np.isnan(b):
        return "only in B" if np.isnan(a) else "only in A"
    if not changed:
        return "within noise"
    return words[int(beyond > 0)]


def _same_work(lines: pd.DataFrame) -> Any:
    """Lines that launch the same kernels for the same work in both runs, as far as is known."""
    same = (lines["a_names"] == lines["b_names"]).to_numpy(bool, na_value=False).copy()
    for name in ("launches", "flops", "bytes"):
        a, b = numbers(lines[f"a_{name}"]), numbers(lines[f"b_{name}"])
        same &= ~(np.abs(b - a) > _SAME_WORK * np.fmax(a, b))  # where one is unknown it can't tell them apart
    return same


def _common(logs: Any, weights: Any) -> float:
    """What the lines have in common: where most of them lie; else the part of the way from 0 that most of them went."""
    near = np.abs(logs[:, None] - logs[None, :]) <= _ALIKE
    together = near @ weights
    crowd = near[int(np.argmax(together))]
    if together.max() >= _MOST * weights.sum():
        return _weighted_quantile(logs[crowd], weights[crowd], 0.5)
    low, high = (_weighted_quantile(logs, weights, q) for q in (_OUTSIDE, 1 - _OUTSIDE))
    return min(max(0.0, low), high)


def _weighted_quantile(values: Any, weights: Any, quantile: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][min(np.searchsorted(reached, quantile * reached[-1]), len(order) - 1)])
