"""How much times differ from step to step and from recording to recording, for each kernel, module and phase.

One sample is one forward of one recording: the time of all launches of a role in it, times their counts. Decode has
a sample per step, prefill one per recording. Where the context grows, attention takes longer with each step: that
is no noise, so noise is what remains around a line through the steps (Theil and Sen's, which a few disturbed steps
do not turn). Steps of one recording share the machine's mood, so what whole recordings differ by is kept too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from kernelroof.parsers.rounds import forward_of
from kernelroof.roofline.place import numbers
from kernelroof.roofline.summary import with_roles

if TYPE_CHECKING:
    from numpy.typing import NDArray

KERNEL = ("role", "kind", "op", "kernel")
"""What tells a kernel role within a phase, as in `summary.kernel_table`."""
SCOPES = {"phase": (), "module": ("role",), "kernel": KERNEL}
"""Scope of a row of spread.csv -> the columns that tell its rows apart within a phase."""
WALL = "wall"
"""Scope of the bare wall time of a phase, whose recordings are the bare run's repeats."""
FIGURES = (
    *("samples", "recordings", "step_median_ns", "step_low_ns", "step_high_ns", "step_min_ns", "step_max_ns"),
    *("growth_pct", "noise_pct", "between_pct"),
)
LAUNCH = ("launches", "launch_median_ns", "launch_low_ns", "launch_high_ns", "launch_min_ns", "launch_max_ns")
_COLUMNS = ("phase", "scope", *KERNEL, *FIGURES, "reason")
_LEAST_FOR_LINE = 5
"""Steps from which a trend is looked for, and samples from which quartiles tell something."""
_ALL_PAIRS = 200
"""Up to so many steps every pair of them votes on the trend; beyond, each with the one half of all steps later."""


def role_steps(kernels: pd.DataFrame, recording: int = 0, pace: Mapping[str, float] | None = None) -> pd.DataFrame:
    """One row per phase, step and kernel role: `time_ns` of all its `launches` in that step, `idle_ns` before them;
    and `pace`.

    Args:
        kernels: rows of kernels.csv, or of any table with its keys, `kind`, `count`, `time_ns` and
            `idle_before_ns`. Rows without a step belong to no forward, and rows without a time tell nothing: both are
            left out.
        recording: number of the recording they are of.
        pace: by phase, what the times have to be multiplied by to be those of a slower or faster recording, where
            each recording's were brought to one total; None: they are as they were recorded.
    """
    rows = _in_forwards(kernels)
    count = numbers(rows["count"])
    amounts = {"time_ns": numbers(rows["time_ns"]) * count, "idle_ns": numbers(rows["idle_before_ns"]) * count}
    work = rows[["phase", "step", *KERNEL]].assign(**amounts, launches=count)
    keys = ["phase", "step", *KERNEL]
    sums = work.groupby(keys, sort=False, dropna=False)[[*amounts, "launches"]].sum().reset_index()
    sums.insert(0, "recording", recording)
    sums["pace"] = sums["phase"].map(pace or {}).astype("float64").fillna(1.0)
    out: pd.DataFrame = sums.astype(dict.fromkeys(["step", *amounts, "launches"], "int64"))
    return out


def all_steps(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The steps of several recordings in one table."""
    together: pd.DataFrame = pd.concat(list(tables), ignore_index=True)
    return together


def levelled(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps of several recordings with paces around that of the middle recording, phase by phase.

    The bare wall time is a median too: so the middle of all samples is on its clock, whichever recording was first.
    """
    each = steps.groupby(["phase", "recording"], sort=False)["pace"].first()
    middle = each.groupby(level="phase", sort=False).median()
    out: pd.DataFrame = steps.assign(pace=steps["pace"] / steps["phase"].map(middle).astype("float64"))
    return out


def step_spread(steps: pd.DataFrame) -> pd.DataFrame:
    """Per scope (phase, module, kernel) the median and spread of the time in one step: most of spread.csv.

    Args:
        steps: of `role_steps`, of one or several recordings, one below the other. A time is `time_ns * pace`: a
            slow recording counts as slow.

    Returns:
        `phase`, `scope`, `role`, `kind`, `op`, `kernel` (null where the scope is wider), FIGURES and `reason`:

        samples, recordings: forwards in which the role ran, and of how many recordings they are.
        step_low_ns, step_high_ns: quartiles; with them median, least and greatest.
        growth_pct: of the line, from the first step to the last, of the median; null with fewer than 5 steps.
        noise_pct: half the distance of the quartiles around that line, of the median; with fewer than 5 samples
            half the distance from the least to the greatest.
        between_pct: half the distance of the lowest and the highest recording's median, of the median; null with
            one recording.
        reason: why a spread is null, or what else than noise is in it.

        With one sample all but the median are null: a spread is then not known.
    """
    return _spread_of(steps.assign(time_ns=steps["time_ns"] * steps["pace"]), SCOPES)


def wall_spread(bare: Mapping[str, Any]) -> pd.DataFrame:
    """The same for the bare wall time of each phase (scope `wall`): a sample is a forward of one repeat.

    Args:
        bare: content of bare.json: `prefill_ns`, one per repeat; `decode_step_ns`, for each repeat one per step.
    """
    found = [("prefill", i, 0, ns) for i, ns in enumerate(bare.get("prefill_ns") or [])]
    for i, repeat in enumerate(bare.get("decode_step_ns") or []):
        found += [("decode", i, step, ns) for step, ns in enumerate(repeat)]
    return _spread_of(pd.DataFrame(found, columns=["phase", "recording", "step", "time_ns"]), {WALL: ()})


def with_launches(spread: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Spread with LAUNCH: the durations of the single launches of each kernel role (of one recording).

    They differ by layer and step as well as by noise. Null where a row stands for several launches at once.
    """
    rows = _in_forwards(kernels)
    rows = rows.assign(time_ns=numbers(rows["time_ns"]), count=numbers(rows["count"]))
    found = []
    for key, group in rows.groupby(["phase", *KERNEL], sort=False, dropna=False):
        time_ns = group["time_ns"].to_numpy(np.float64)
        figures = np.quantile(time_ns, [0.5, 0.25, 0.75, 0, 1]) if (group["count"] == 1).all() else [None] * 5
        found.append([*key, int(group["count"].sum()), *figures])
    keys = ["phase", *KERNEL]
    table = pd.DataFrame(found, columns=[*keys, *LAUNCH]).assign(scope="kernel")
    table = table.astype({**dict.fromkeys([*keys, "scope"], "string"), "launches": "Int64"})
    out: pd.DataFrame = spread.merge(table, on=[*keys, "scope"], how="left", sort=False, validate="1:1")
    ordered: pd.DataFrame = out[[*(c for c in out if c != "reason"), "reason"]]
    return ordered


def with_spread(table: pd.DataFrame, spread: pd.DataFrame, phase: str, keys: Sequence[str] = KERNEL) -> pd.DataFrame:
    """A kernel or module table of one phase with the columns FIGURES of its rows; null where none is known."""
    scope = next(s for s, k in SCOPES.items() if tuple(k) == tuple(keys))
    found = spread[(spread["phase"] == phase) & (spread["scope"] == scope)]
    left = table.astype(dict.fromkeys(keys, "string"))
    right = found[[*keys, *FIGURES]].astype(dict.fromkeys(keys, "string"))
    merged: pd.DataFrame = left.merge(right, on=list(keys), how="left", sort=False, validate="1:1")
    return merged


def trend(step: NDArray[np.int64], time_ns: NDArray[np.float64], recording: NDArray[np.int64]) -> float:
    """ns per step: the median slope between two steps of one recording (Theil and Sen)."""
    slopes = [np.empty(0)]
    for one in np.unique(recording):
        order = np.argsort(step[recording == one], kind="stable")
        x, y = step[recording == one][order].astype(np.float64), time_ns[recording == one][order]
        if len(x) > _ALL_PAIRS:
            half = len(x) // 2
            slopes.append((y[half:] - y[:-half]) / (x[half:] - x[:-half]))
        else:
            first, second = np.triu_indices(len(x), k=1)
            slopes.append((y[second] - y[first]) / (x[second] - x[first]))
    together = np.concatenate(slopes)
    return float(np.median(together)) if len(together) else 0.0


def _in_forwards(kernels: pd.DataFrame) -> pd.DataFrame:
    rows = kernels.assign(step=forward_of(kernels))
    return with_roles(rows[rows["step"].notna() & rows["time_ns"].notna()])


def _spread_of(steps: pd.DataFrame, scopes: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    amounts = [c for c in ("time_ns", "launches") if c in steps]
    for scope, keys in scopes.items():
        sums = steps.groupby(["phase", "recording", "step", *keys], sort=False, dropna=False)[amounts].sum()
        for key, group in sums.reset_index().groupby(["phase", *keys], sort=False, dropna=False):
            named = dict(zip(["phase", *keys], key, strict=True))
            rows.append({**named, "scope": scope, **_figures(group)})
    out = pd.DataFrame(rows).reindex(columns=list(_COLUMNS))
    types: dict[str, str] = {
        **dict.fromkeys(["phase", "scope", *KERNEL, "reason"], "string"),
        **dict.fromkeys(FIGURES, "float64"),
        **dict.fromkeys(["samples", "recordings"], "Int64"),
    }
    typed: pd.DataFrame = out.astype(types)
    return typed


def _figures(group: pd.DataFrame) -> dict[str, Any]:
    recording, step = group["recording"].to_numpy(np.int64), group["step"].to_numpy(np.int64)
    time_ns = group["time_ns"].to_numpy(np.float64)
    middle = float(np.median(time_ns))
    recordings = np.unique(recording)
    out: dict[str, Any] = {"samples": len(time_ns), "recordings": len(recordings), "step_median_ns": middle}
    if len(time_ns) < 2:
        return {**out, "reason": "one sample (one forward of one recording): its spread is not known"}
    low, high, least, most = np.quantile(time_ns, [0.25, 0.75, 0, 1])
    out |= {"step_low_ns": low, "step_high_ns": high, "step_min_ns": least, "step_max_ns": most}
    if middle <= 0:
        return {**out, "reason": "its median is 0 ns: there is nothing that a share could be of"}
    rest = time_ns
    if len(np.unique(step)) >= _LEAST_FOR_LINE:
        slope = trend(step, time_ns, recording)
        rest = time_ns - slope * (step - np.median(step))
        out["growth_pct"] = 100 * slope * float(step.max() - step.min()) / middle
    near, far = np.quantile(rest, [0.25, 0.75] if len(rest) >= _LEAST_FOR_LINE else [0, 1])
    out["noise_pct"] = 100 * (far - near) / 2 / middle
    if len(recordings) > 1:
        medians = [float(np.median(rest[recording == one])) for one in recordings]
        out["between_pct"] = 100 * (max(medians) - min(medians)) / 2 / middle
    return {**out, "reason": _other_than_noise(group)}


def _other_than_noise(group: pd.DataFrame) -> str | None:
    """Where steps differ in how much they launch, their times differ by that too."""
    if "launches" not in group:
        return None
    fewest, most = int(group["launches"].min()), int(group["launches"].max())
    return None if fewest == most else f"{fewest} to {most} launches a step: not all that differs is noise"
