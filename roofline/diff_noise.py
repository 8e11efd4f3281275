"""What counts as a change between two runs: more than they differ by themselves.

Three sources of difference that is no change are weighed, each from the runs' own repeats:

- a line's own spread: the medians of its time in each recording, and the steps around them;
- the drift of the whole machine between the runs (all lines slower alike): the middle of all lines' ratios, weighted
  by time. It is reported by itself and taken out of the lines, where the set-ups are the same;
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


def judged(
    lines: pd.DataFrame,
    walls: Mapping[str, tuple[Wall, Wall]],
    noise: Sequence[Mapping[tuple[str, str, str], float]],
    *,
    same_setup: bool,
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Lines with what changed in them, and by phase the drift of all lines in per cent.

    Args:
        lines: of `diff.aligned`.
        walls: bare wall times of A and B by phase; empty for runs without.
        noise: of `own_noise`, of A and of B.
        same_setup: whether the runs are of one set-up, so that lines slower alike are the machine's doing.

    Returns:
        `lines` with `delta_ns` (B - A per forward, a missing side counting 0), `expected_ns` (what drift alone would
        make of A's time), `noise_ns` (what B may differ from that by itself), `changed` and `says`.
    """
    out = lines.copy()
    time_a, time_b = numbers(out["a_time_ns"]), numbers(out["b_time_ns"])
    both = (time_a > 0) & (time_b > 0)
    drift: dict[str, float] = {}
    expected, floor = np.nan_to_num(time_a), np.zeros(len(out))
    phases = out["phase"].astype(str).to_numpy()
    for phase in dict.fromkeys(phases):
        here = phases == phase
        total = walls[phase][0].median_ns if phase in walls else float(np.nansum(time_a[here]))
        weight = np.where(here & both, np.minimum(np.nan_to_num(time_a), np.nan_to_num(time_b)), 0.0)
        big = weight > _NAMED_SHARE * total
        logs = np.log(np.where(both, time_b, 1.0) / np.where(both, time_a, 1.0))
        middle = _weighted_median(logs[big], weight[big]) if same_setup and big.any() else 0.0
        drift[phase] = 100 * (float(np.exp(middle)) - 1)
        expected = np.where(here, expected * np.exp(middle), expected)
        apart = _MAD_TO_SIGMA * float(np.median(np.abs(logs[big] - middle))) if big.sum() > 2 else 0.0
        sigma = min(100 * apart, MOST_SIGMA_PCT) / 100 if same_setup else 0.0
        own = np.array(
            [
                float(np.hypot(noise[0].get(key, 0.0), noise[1].get(key, 0.0)))
                for key in zip(phases, out["module"].astype(str), out["kind"].astype(str), strict=True)
            ]
        )
        most = np.fmax(np.nan_to_num(time_a), np.nan_to_num(time_b))
        least = np.maximum(LEAST_PCT / 100 * most, LEAST_SHARE_PCT / 100 * total)
        floor = np.where(here, np.maximum(least, SIGMAS * np.hypot(sigma * most, own)), floor)
    out["delta_ns"] = np.nan_to_num(time_b) - np.nan_to_num(time_a)
    out["expected_ns"], out["noise_ns"] = expected, floor
    beyond = np.nan_to_num(time_b) - expected
    out["changed"] = np.abs(beyond) > floor
    out["says"] = [_says(a, b, d, c) for a, b, d, c in zip(time_a, time_b, beyond, out["changed"], strict=True)]
    return out, drift


def phase_change(wall: tuple[Wall, Wall], drift_pct: float, roofs_pct: float, *, same_setup: bool) -> PhaseChange:
    """Whether a phase's wall time changed.

    Args:
        roofs_pct: how far the measured roofs of the two runs differ: what the machine itself drifted by.
    """
    a, b = wall
    change = 100 * (b.median_ns - a.median_ns) / a.median_ns if a.median_ns else 0.0
    noise = max(LEAST_WALL_PCT, a.spread_pct + b.spread_pct, abs(roofs_pct) if same_setup else 0.0)
    return PhaseChange(a.median_ns, b.median_ns, change, noise, drift_pct, abs(change) > noise)


def _says(a: float, b: float, beyond: float, changed: Any) -> str:
    if np.isnan(a) or np.isnan(b):
        return "only in B" if np.isnan(a) else "only in A"
    if not changed:
        return "within noise"
    return "slower" if beyond > 0 else "faster"


def _weighted_median(values: Any, weights: Any) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])
