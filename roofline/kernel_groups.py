"""A counted table summed into kernels, on one clock: what pictures and the terminal show."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
from kernelroof.parsers.kernel_names import shorten
from kernelroof.parsers.schema import UNATTRIBUTED
from kernelroof.roofline.place import aggregate, heaviest, numbers, ratio
from kernelroof.roofline.summary import role_of

KEYS = ["phase", "role", "kernel", "grid"]
_SHARES = ("dram_pct", "sm_pct", "sm_pct_at_least", "tensor_pct", "occupancy_pct")
_WORD = re.compile(r"[\w.]+")
_LONGEST_TAG = 20
_NEARLY_ALL = 0.95


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
    and intensity of L2 and L1, the `cure` and the launching `op` that hold for most of the time, and the `verdict`
    of a typical launch.
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
    out = out.merge(_typical(work, weight), on=KEYS, how="left")
    for name in ("cure", "op"):
        best = heaviest(work[[*KEYS, name]].assign(weight_ns=weight), KEYS, name)
        out = out.merge(best, on=KEYS, how="left")
    for level in ("l2", "l1"):
        out[f"intensity_{level}"] = ratio(numbers(out["flops"]), numbers(out[f"{level}_bytes"]))
    total = float(np.nansum(numbers(out["time_ns"]))) or 1.0
    out["share_pct"] = 100 * numbers(out["time_ns"]) / total
    out["label"] = labels(out)
    ordered: pd.DataFrame = out.sort_values("time_ns", ascending=False, kind="stable").reset_index(drop=True)
    return ordered


def _typical(work: pd.DataFrame, weight: np.ndarray[Any, Any]) -> pd.DataFrame:
    """Per group the sentence of the launch that is most like the mean of those that are bound and cured alike.

    Those are the launches of the bound and the cure that hold for most of the time; where others have a part
    in it, the sentence says for how much it stands. A sentence with figures of the largest launch would not
    fit the figures of the group beside it.
    """
    level = numbers(work["pct_of_roof"])
    level = np.where(np.isnan(level), np.fmax(numbers(work["dram_pct"]), numbers(work["sm_pct"])), level)
    alike = work["bound"].astype("string").fillna("") + "|" + work["cure"].astype("string").fillna("")
    # Without a bound on this clock, launches are alike in what stands against one, or in that of the other clock.
    said = work["verdict"].astype("string").fillna("")
    begins = said.str.split("[:,]", n=1, regex=True).str[0].where(~said.str.startswith("not judged"), said)
    alike = alike + ("|" + begins).where(work["bound"].fillna("unknown") == "unknown", "")
    rows = work[[*KEYS, "verdict"]].assign(alike=alike, weight_ns=weight, level=level)
    rows = rows.merge(heaviest(rows, KEYS, "alike"), on=[*KEYS, "alike"], how="left", indicator="most")
    rows["in_all"] = rows.groupby(KEYS, sort=False, dropna=False)["weight_ns"].transform("sum")
    rows = rows[rows["most"] == "both"]
    rows = rows.assign(part=rows["weight_ns"] * rows["level"], of=rows["weight_ns"].where(rows["level"].notna()))
    sums = rows.groupby(KEYS, sort=False, dropna=False)[["part", "of", "weight_ns"]].transform("sum")
    share = (sums["weight_ns"] / rows["in_all"]).fillna(1.0)
    rows = rows.assign(far=(rows["level"] - sums["part"] / sums["of"]).abs())
    only = [f" (so for {100 * s:.0f} % of its time)" if s < _NEARLY_ALL else "" for s in share]
    rows["verdict"] = rows["verdict"] + pd.Series(only, rows.index, dtype="string")
    best = rows.sort_values(["far", "weight_ns"], ascending=[True, False], kind="stable").drop_duplicates(KEYS)
    found: pd.DataFrame = best[[*KEYS, "verdict"]]
    return found


def labels(kernels: pd.DataFrame) -> list[str]:
    """Short names: module where it is known, the function, and what sets those apart that would be equal."""
    short = []
    for role, name in zip(kernels["role"], kernels["kernel"], strict=True):
        where = "" if role in (UNATTRIBUTED, "(root)") else str(role).split(".*.")[-1] + " "
        short.append(where + shorten(str(name).removeprefix("aten::"), 40))
    if kernels["phase"].nunique() > 1:
        phases = kernels["phase"].astype(str)
        short = [f"{p}: {s}" if p != UNATTRIBUTED else s for p, s in zip(phases, short, strict=True)]
    times = Counter(short)
    gridded = [
        f"{name} [{grid}]" if times[name] > 1 and not pd.isna(grid) else name
        for name, grid in zip(short, kernels["grid"], strict=True)
    ]
    return _apart(gridded, [str(name) for name in kernels["kernel"]])


def _apart(short: list[str], full: list[str]) -> list[str]:
    """Short names, with the words in which the full ones differ where several would be equal, else with a number."""
    out = list(short)
    for name, times in Counter(short).items():
        members = [i for i, other in enumerate(short) if other == name]
        kinds = list(dict.fromkeys(full[i] for i in members))
        if times == 1 or len(kinds) == 1:
            continue
        words = [_WORD.findall(kind) for kind in kinds]
        columns = list(zip(*words, strict=False)) if len({len(w) for w in words}) == 1 else []
        telling = [column for column in columns if len(set(column)) > 1]
        tried = [[",".join(column[k] for column in telling[:n]) for k in range(len(kinds))] for n in (1, 2)]
        tried = [tags for tags in tried if len(set(tags)) == len(kinds) and max(map(len, tags)) <= _LONGEST_TAG]
        tags = tried[0] if tried else [str(k + 1) for k in range(len(kinds))]
        for i in members:
            out[i] = f"{name} ({tags[kinds.index(full[i])]})"
    return out
