"""How much times differ from step to step and from recording to recording, for each kernel, module and phase.

One sample is one forward of one recording: the time of all launches of a role in it, times their counts. Decode has
a sample per step, prefill one per recording. Where the context grows, attention takes longer with each step: that
is no noise, so noise is what remains around a line through the steps (Theil and Sen's, which a few disturbed steps
do not turn).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from kernelroof.roofline.place import numbers
from kernelroof.roofline.summary import with_roles

if TYPE_CHECKING:
    from numpy.typing import NDArray

KERNEL = ("role", "kind", "op", "kernel")
"""What tells a kernel role within a phase, as in `summary.kernel_table`."""
SCOPES = {"phase": (), "module": ("role",), "kernel": KERNEL}
"""Scope of a row of spread.csv -> the columns that tell its rows apart within a phase."""
FIGURES = (
    *("samples", "recordings", "step_median_ns", "step_low_ns", "step_high_ns", "step_min_ns", "step_max_ns"),
    *("growth_pct", "noise_pct"),
)
_LEAST_FOR_LINE = 5
"""Steps of one recording from which a trend is looked for."""


def role_steps(kernels: pd.DataFrame, recording: int = 0) -> pd.DataFrame:
    """One row per phase, step and kernel role: `time_ns` of all its launches in that step.

    Args:
        kernels: rows of kernels.csv, or of any table with its keys, `kind`, `count` and `time_ns`. Rows without a
            step belong to no forward and are left out.
        recording: number of the recording they are of.
    """
    rows = with_roles(kernels[kernels["step"].notna()])
    work = rows[["phase", "step", *KERNEL]].assign(time_ns=numbers(rows["time_ns"]) * numbers(rows["count"]))
    sums = work.groupby(["phase", "step", *KERNEL], sort=False, dropna=False)["time_ns"].sum().reset_index()
    sums.insert(0, "recording", recording)
    out: pd.DataFrame = sums.astype({"step": "int64", "time_ns": "int64"})
    return out


def step_spread(steps: pd.DataFrame) -> pd.DataFrame:
    """spread.csv: per scope (phase, module, kernel) the median and spread of the time in one step.

    Args:
        steps: of `role_steps`, of one or several recordings, one below the other.

    Returns:
        `phase`, `scope`, `role`, `kind`, `op`, `kernel` (null where the scope is wider), and FIGURES: quartiles
        (`step_low_ns`, `step_high_ns`), `growth_pct` (from the first step to the last, of the median; null with
        fewer than 5 steps), `noise_pct` (half the distance of the quartiles around the line, of the median).
        With one sample all but the median are null: a spread is then not known.
    """
    parts = []
    for scope, keys in SCOPES.items():
        sums = steps.groupby(["phase", "recording", "step", *keys], sort=False, dropna=False)["time_ns"].sum()
        table = sums.reset_index()
        rows: list[dict[str, Any]] = []
        for key, group in table.groupby(["phase", *keys], sort=False, dropna=False):
            found = key if isinstance(key, tuple) else (key,)
            rows.append(
                {
                    **dict(zip(["phase", *keys], found, strict=True)),
                    **_figures(
                        group["recording"].to_numpy(np.int64),
                        group["step"].to_numpy(np.int64),
                        group["time_ns"].to_numpy(np.float64),
                    ),
                }
            )
        parts.append(pd.DataFrame(rows).assign(scope=scope))
    together = pd.concat([p for p in parts if len(p)], ignore_index=True) if any(map(len, parts)) else pd.DataFrame()
    out: pd.DataFrame = together.reindex(columns=["phase", "scope", *KERNEL, *FIGURES])
    typed: pd.DataFrame = out.astype(dict.fromkeys(["phase", "scope", *KERNEL], "string"))
    return typed


def with_spread(table: pd.DataFrame, spread: pd.DataFrame, phase: str, keys: Sequence[str] = KERNEL) -> pd.DataFrame:
    """A kernel or module table of one phase with the columns FIGURES of its rows; null where none is known."""
    scope = next(s for s, k in SCOPES.items() if tuple(k) == tuple(keys))
    found = spread[(spread["phase"] == phase) & (spread["scope"] == scope)]
    left = table.astype(dict.fromkeys(keys, "string"))
    right = found[[*keys, *FIGURES]].astype(dict.fromkeys(keys, "string"))
    merged: pd.DataFrame = left.merge(right, on=list(keys), how="left", sort=False, validate="1:1")
    return merged


def _figures(recording: NDArray[np.int64], step: NDArray[np.int64], time_ns: NDArray[np.float64]) -> dict[str, Any]:
    out: dict[str, Any] = dict.fromkeys(FIGURES)
    middle = float(np.median(time_ns))
    out |= {"samples": len(time_ns), "recordings": len(np.unique(recording)), "step_median_ns": middle}
    if len(time_ns) < 2:
        return out
    low, high = np.quantile(time_ns, [0.25, 0.75])
    out |= {"step_low_ns": float(low), "step_high_ns": float(high)}
    out |= {"step_min_ns": float(time_ns.min()), "step_max_ns": float(time_ns.max())}
    rest = time_ns
    if len(np.unique(step)) >= _LEAST_FOR_LINE:
        slope = trend(step, time_ns, recording)
        rest = time_ns - slope * (step - np.median(step))
        if middle:
            out["growth_pct"] = 100 * slope * float(step.max() - step.min()) / middle
    near, far = np.quantile(rest, [0.25, 0.75])
    if middle:
        out["noise_pct"] = float(100 * (far - near) / 2 / middle)
    return out


def trend(step: NDArray[np.int64], time_ns: NDArray[np.float64], recording: NDArray[np.int64]) -> float:
    """ns per step: the median slope between two steps of one recording (Theil and Sen)."""
    slopes = []
    for one in np.unique(recording):
        mine = recording == one
        x, y = step[mine].astype(np.float64), time_ns[mine]
        far = np.subtract.outer(x, x)
        above = far > 0
        slopes.append(np.subtract.outer(y, y)[above] / far[above])
    together = np.concatenate(slopes)
    return float(np.median(together)) if len(together) else 0.0


def all_steps(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The steps of several recordings in one table."""
    together: pd.DataFrame = pd.concat(list(tables), ignore_index=True)
    return together
