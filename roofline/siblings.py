"""Layers that differ from their siblings: the same work, another time.

Siblings are layers whose launches are the same (roles, FLOPs, bytes); a layer with a window is no sibling of one
without. Each step is compared by itself: the layer's time against the median of its siblings in that step, so that a
slow step is no slow layer. What counts is the median of these differences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from kernelroof.roofline.place import numbers
from kernelroof.roofline.summary import with_roles
from kernelroof.roofline.units import seconds
from kernelroof.roofline.waterfall import layer_of

COLUMNS = ("phase", "layer", "words", "time_ns", "typical_ns", "excess_pct", "samples")
_LEAST_SIBLINGS = 3
_LEAST_PCT = 10.0
"""A layer is not named for less than this, in per cent of its siblings."""
_LEAST_PCT_ONCE = 25.0
"""The same where there is a single sample."""
_SIGMAS = 4.0
_MAD_TO_SIGMA = 1.4826


def odd_layers(kernels: pd.DataFrame) -> pd.DataFrame:
    """The layers that differ from their siblings by more than steps and siblings differ by themselves.

    Args:
        kernels: rows of kernels.csv.

    Returns:
        COLUMNS, most excess first; `time_ns` and `typical_ns` are of one step (medians); `excess_pct` is negative
        for a faster layer.
    """
    rows = with_roles(kernels[kernels["step"].notna()])
    rows = rows.assign(layer=rows["module"].astype(str).map(layer_of), total_ns=_totals(rows, "time_ns"))
    rows = rows[rows["layer"] != ""]
    found: list[dict[str, Any]] = []
    for phase, here in rows.groupby("phase", sort=False):
        first = str(here["layer"].iloc[0])
        for layers in _siblings(here):
            mine = here[here["layer"].isin(layers)]
            steps = mine.groupby(["step", "layer"], sort=False)["total_ns"].sum().unstack("layer")
            found += [{"phase": str(phase), **row} for row in _odd(steps.dropna(), first)]
    table = pd.DataFrame(found, columns=list(COLUMNS))
    ordered = table.sort_values("excess_pct", key=abs, ascending=False, kind="stable")
    out: pd.DataFrame = ordered.reset_index(drop=True)
    return out


def _siblings(rows: pd.DataFrame) -> list[list[str]]:
    """Groups of layers that launch the same work, of one phase.

    Where only a group of kernels has figures, each of them stands for those of its group.
    """
    work = rows.assign(
        work=_totals(rows, "flops", "group_flops"), moved=_totals(rows, "dram_read_bytes", "group_bytes")
    )
    keys = ["layer", "role", "op"]
    sums = work.groupby(keys, sort=True, dropna=False)[["work", "moved"]].sum().reset_index()
    groups: dict[tuple[Any, ...], list[str]] = {}
    for layer, part in sums.groupby("layer", sort=False):
        what = tuple(part[["role", "op", "work", "moved"]].itertuples(index=False, name=None))
        groups.setdefault(what, []).append(str(layer))
    return [layers for layers in groups.values() if len(layers) >= _LEAST_SIBLINGS]


def _odd(steps: pd.DataFrame, first: str) -> list[dict[str, Any]]:
    """The odd ones of some siblings; a row per step, a column per layer, ns. `first` is the first layer of a pass."""
    samples = len(steps)
    if not samples:
        return []
    layers = [str(c) for c in steps.columns]
    times = steps.to_numpy(np.float64)
    excess = []
    for i in range(len(layers)):
        others = np.delete(times, i, axis=1)
        excess.append(np.median(times[:, i] - np.median(others, axis=1)))
    out = []
    for i, layer in enumerate(layers):
        others = np.delete(times, i, axis=1)
        middle = np.median(others, axis=1)
        typical = float(np.median(middle))
        # How far siblings lie apart by themselves, and how far this layer's own difference is known.
        apart = _MAD_TO_SIGMA * float(np.median(np.abs(np.delete(np.array(excess), i))))
        own = times[:, i] - middle
        known = _MAD_TO_SIGMA * float(np.median(np.abs(own - np.median(own)))) / np.sqrt(samples)
        least = (_LEAST_PCT if samples >= _LEAST_SIBLINGS else _LEAST_PCT_ONCE) / 100 * typical
        if not typical or abs(excess[i]) <= max(least, _SIGMAS * apart, _SIGMAS * known):
            continue
        pct = 100 * float(excess[i]) / typical
        took = float(np.median(times[:, i]))
        how = f"{seconds(took / 1e9, 3)} a step, its siblings {seconds(typical / 1e9, 3)}"
        usual = layer == first and pct > 0
        cold = ", as the first of a pass often is (cold caches, first touches)" if usual else ""
        once = "; one sample" if samples == 1 else ""
        words = f"{layer} is {abs(pct):.0f} % {'slower' if pct > 0 else 'faster'} than its siblings: {how}{cold}{once}"
        out.append(
            {
                "layer": layer,
                "words": words,
                "time_ns": took,
                "typical_ns": typical,
                "excess_pct": pct,
                "samples": samples,
            }
        )
    return out


def _totals(rows: pd.DataFrame, name: str, of_group: str | None = None) -> Any:
    values = numbers(rows[name])
    if of_group is not None and of_group in rows:
        values = np.where(np.isnan(values), numbers(rows[of_group]), values)
    return np.nan_to_num(values) * numbers(rows["count"])
