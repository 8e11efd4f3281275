"""A counted table summed into kernels, on one clock: what pictures and the terminal show."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
from kernelroof.parsers.kernel_names import shorten
from kernelroof.parsers.schema import UNATTRIBUTED
from kernelroof.roofline.place import aggregate, heaviest, numbers, ratio
from kernelroof.roofline.summary import role_of

KEYS = ["phase", "role", "kernel", "grid"]
_SHARES = ("dram_pct", "sm_pct", "sm_pct_at_least", "tensor_pct", "occupancy_pct")


def on_clock(table: pd.DataFrame, clock: str) -> pd.DataFrame:
    """The rows of a table (ANALYZED) that have a duration on a clock, with the placing columns of that clock."""
    time = numbers(table["ncu_time_ns"] if clock == "ncu" else table["timeline_ns"])
    pct = numbers(table[f"{clock}_pct_of_roof"])
    ideal = pct / 100 * time
    doubtful = table["verdict"].astype("string").str.startswith(("impossible", "inconsistent")).fillna(False)
    recoverable = np.maximum(time - ideal, 0) * numbers(table["count"])
    out = table.assign(
        time_ns=pd.Series(time, table.index).astype("Int64"),
        ideal_ns=ideal,
        pct_of_roof=pct,
        recoverable_ns=np.where(doubtful, np.nan, recoverable),
        bound=table[f"{clock}_bound"].fillna("unknown"),
    )
    kept: pd.DataFrame = out[~np.isnan(time)]
    return kept


def kernels_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Sum launches (of `on_clock`) into kernels of one phase, module role and grid, most time first.

    Adds to the columns of `place.aggregate`: `role`, `label`, `share_pct`, time-weighted shares of peak, bytes
    and intensity of L2 and L1, `cure`, `verdict` and the launching `op` that hold for most of the time.
    """
    roles = {m: role_of(str(m)) for m in rows["module"].unique()}
    work = rows.assign(role=rows["module"].map(roles).astype("string"), grid=rows["grid"].astype("string"))
    out = aggregate(work, KEYS)
    weight = numbers(work["time_ns"]) * numbers(work["count"])
    extra = work[KEYS].copy()
    for name in _SHARES:
        value = numbers(work[name])
        extra[name] = np.where(np.isnan(value), np.nan, value * weight)
        extra[f"{name}_of"] = np.where(np.isnan(value), np.nan, weight)
    placed = work["flops"].notna().to_numpy(bool)
    for level in ("l2", "l1"):
        moved = np.where(placed, numbers(work[f"{level}_bytes"]) * numbers(work["count"]), np.nan)
        extra[f"{level}_bytes"] = moved
    sums = extra.groupby(KEYS, sort=False, dropna=False).sum(min_count=1).reset_index()
    for name in _SHARES:
        sums[name] = ratio(numbers(sums[name]), numbers(sums.pop(f"{name}_of")))
    out = out.merge(sums, on=KEYS, how="left")
    for name in ("cure", "verdict", "op"):
        best = heaviest(work[[*KEYS, name]].assign(weight_ns=weight), KEYS, name)
        out = out.merge(best, on=KEYS, how="left")
    for level in ("l2", "l1"):
        out[f"intensity_{level}"] = ratio(numbers(out["flops"]), numbers(out[f"{level}_bytes"]))
    total = float(np.nansum(numbers(out["time_ns"]))) or 1.0
    out["share_pct"] = 100 * numbers(out["time_ns"]) / total
    out["label"] = labels(out)
    ordered: pd.DataFrame = out.sort_values("time_ns", ascending=False, kind="stable").reset_index(drop=True)
    return ordered


def labels(kernels: pd.DataFrame) -> list[str]:
    """Short names: module where it is known, the function, and the grid where several would be equal."""
    short = []
    for role, name in zip(kernels["role"], kernels["kernel"], strict=True):
        where = "" if role in (UNATTRIBUTED, "(root)") else str(role).split(".*.")[-1] + " "
        short.append(where + shorten(str(name).removeprefix("aten::"), 40))
    if kernels["phase"].nunique() > 1:
        phases = kernels["phase"].astype(str)
        short = [f"{p}: {s}" if p != UNATTRIBUTED else s for p, s in zip(phases, short, strict=True)]
    times = Counter(short)
    return [
        f"{name} [{grid}]" if times[name] > 1 and not pd.isna(grid) else name
        for name, grid in zip(short, kernels["grid"], strict=True)
    ]
