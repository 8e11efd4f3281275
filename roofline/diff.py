"""Two runs, role by role: the same work found in both, whatever its kernels are called.

A line of the comparison is a module role and a kind of work in one phase. Where a module is in one run only (fused or
split products, a compiled model without ranges), what both runs have left of each other is gathered at the nearest
module that is above both, so that every nanosecond of either run is in exactly one line. The time in which no kernel
ran is a kind of its own (`with_idle`), in the module whose kernel it was that came late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from kernelroof.parsers.schema import ROOT_MODULE, UNATTRIBUTED
from kernelroof.roofline.place import aggregate, numbers
from kernelroof.roofline.summary import with_roles

WHOLE = "(model)"
"""The line at the root: what one of the runs can't tell apart."""
GATHERED = "several"
"""Kind of a line that gathers modules of other names."""
IDLE = "idle"
"""Kind of a line that holds the time in which no kernel ran, right before those of its module."""
NO_KERNEL = "(no kernel running)"
_PARTLY = 0.05
"""Where kernels without FLOPs or bytes take more than this share of a line's time, its figures are not known."""
KEYS = ("phase", "module", "kind")
FIGURES = (
    *("launches", "time_ns", "flops", "bytes", "intensity", "ideal_ns", "pct_of_roof", "recoverable_ns"),
    *("bound", "names", "modules"),
)
"""Figures of one side of a line, each per forward; `names`: its kernels; `modules`: what was gathered."""


class Side(NamedTuple):
    """One of the two runs."""

    kernels: pd.DataFrame
    """of `with_idle`, or kernels.csv"""
    steps: Mapping[str, int]
    """forwards in each phase"""


def with_idle(rows: pd.DataFrame, column: str = "idle_before_ns") -> pd.DataFrame:
    """Kernels and, as rows of kind IDLE, the time in which none ran before each of them.

    Args:
        rows: of kernels.csv, or of repeats.csv (`column` is then "idle_ns").
    """
    words = {"kind": IDLE, "kernel": NO_KERNEL, "op": NO_KERNEL, "bound": IDLE}
    texts = {k: pd.Series(v, rows.index, dtype=rows[k].dtype) for k, v in words.items() if k in rows}
    unknown = [*("flops", "dram_read_bytes", "dram_write_bytes", "ideal_ns", "recoverable_ns"), "reason"]
    nulls = {c: rows[c].where(np.zeros(len(rows), bool)) for c in unknown if c in rows}
    idle = rows.assign(**texts, **nulls, time_ns=rows[column].astype(rows["time_ns"].dtype))
    together: pd.DataFrame = pd.concat([rows, idle], ignore_index=True)
    return together


def aligned(a: Side, b: Side) -> pd.DataFrame:
    """One row per line: KEYS, and FIGURES of each side as `a_...` and `b_...`, per forward; null where absent.

    Only phases that both runs have are compared.
    """
    rows_a, rows_b = with_roles(a.kernels), with_roles(b.kernels)
    phases = [p for p in a.steps if p in b.steps]
    parts = []
    for phase in phases:
        here = [rows[rows["phase"] == phase] for rows in (rows_a, rows_b)]
        lines = line_of(*(_units(rows) for rows in here))
        sides = [
            _figures(rows, lines, side.steps[phase]).add_prefix(prefix)
            for rows, side, prefix in zip(here, (a, b), ("a_", "b_"), strict=True)
        ]
        both = sides[0].join(sides[1], how="outer")
        both.index.names = ["module", "kind"]
        parts.append(both.reset_index().assign(phase=phase))
    columns = [*KEYS, *(f"{side}_{name}" for side in "ab" for name in FIGURES)]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    took = (numbers(table["a_time_ns"]) > 0) | (numbers(table["b_time_ns"]) > 0) | (table["kind"] != IDLE)
    table = table[took].reset_index(drop=True)
    out: pd.DataFrame = table.reindex(columns=columns)
    return out


def line_of(units_a: set[tuple[str, str]], units_b: set[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str]]:
    """The line (module, kind) of every unit (module role, kind) of either run.

    A unit that both have is a line. One that only one has goes to the nearest module above it under which the
    other run has such units too; where there is none, it is a line of its own, absent in the other run.
    """
    found = {unit: unit for unit in units_a | units_b}
    left_a, left_b = units_a - units_b, units_b - units_a
    for mine, other in ((left_a, left_b), (left_b, left_a)):
        above_other = {a for module, _ in other for a in ancestors(module)}
        for module, kind in mine:
            common = next((a for a in ancestors(module) if a in above_other), None)
            if common is not None and (common != WHOLE or _tells_little(mine) or _tells_little(other)):
                found[module, kind] = (common, GATHERED)
    return _settled(found, left_a, left_b)


def ancestors(module: str) -> list[str]:
    """A module role and all above it, nearest first; the root last."""
    if module in (ROOT_MODULE, UNATTRIBUTED):
        return [WHOLE]
    parts = module.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)] + [WHOLE]


def _tells_little(units: set[tuple[str, str]]) -> bool:
    """Whether a run has work that it can't put into any module."""
    return any(module in (ROOT_MODULE, UNATTRIBUTED) for module, _ in units)


def _settled(
    found: dict[tuple[str, str], tuple[str, str]], left_a: set[tuple[str, str]], left_b: set[tuple[str, str]]
) -> dict[tuple[str, str], tuple[str, str]]:
    """A gathered line that ended up with units of one run only is undone: its units stand by themselves."""
    for line in {line for line in found.values() if line[1] == GATHERED}:
        members = {unit for unit, own in found.items() if own == line}
        if not (members & left_a and members & left_b):
            found |= {unit: unit for unit in members}
    return found


def _units(rows: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(rows["role"].astype(str), rows["kind"].astype(str), strict=True))


def _figures(rows: pd.DataFrame, lines: Mapping[tuple[str, str], tuple[str, str]], steps: int) -> pd.DataFrame:
    """FIGURES by line (module, kind), per forward."""
    units = list(zip(rows["role"].astype(str), rows["kind"].astype(str), strict=True))
    work = rows.assign(_module=[lines[u][0] for u in units], _kind=[lines[u][1] for u in units])
    keys = ["_module", "_kind"]
    table = aggregate(work, keys).set_index(keys)
    for name in ("launches", "time_ns", "flops", "bytes", "ideal_ns", "recoverable_ns"):
        table[name] = numbers(table[name]) / steps
    # Sums and shares over a part of the work would pass for those of all of it.
    partly = numbers(table["unplaced_ns"]) > _PARTLY * numbers(table["time_ns"])
    for name in ("flops", "bytes", "intensity", "ideal_ns", "pct_of_roof", "recoverable_ns"):
        table[name] = numbers(table[name])
        table.loc[partly, name] = np.nan
    grouped = work.groupby(keys, sort=False, dropna=False)
    table["names"] = grouped["kernel"].agg(_names)
    table["modules"] = grouped["role"].agg(_names)
    out: pd.DataFrame = table[list(FIGURES)]
    return out


def _names(values: pd.Series[str]) -> str:
    return " | ".join(dict.fromkeys(values.astype(str)))


def waterfalls(
    a: pd.DataFrame, b: pd.DataFrame, steps_a: Mapping[str, int], steps_b: Mapping[str, int]
) -> pd.DataFrame:
    """The terms of both runs' phases beside each other: `phase`, `term`, `a_ns`, `b_ns` per forward."""
    from kernelroof.roofline.waterfall import TERMS

    rows = []
    for phase in (p for p in steps_a if p in steps_b):
        found = [t[(t["phase"] == phase) & (t["scope"] == "phase")] for t in (a, b)]
        if any(f.empty for f in found):
            continue
        for term in (*TERMS, "total_ns"):
            values = [float(f.iloc[0][term]) / s[phase] for f, s in zip(found, (steps_a, steps_b), strict=True)]
            rows.append({"phase": phase, "term": term, "a_ns": values[0], "b_ns": values[1]})
    table: pd.DataFrame = pd.DataFrame(rows, columns=["phase", "term", "a_ns", "b_ns"])
    return table
