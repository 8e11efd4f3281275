"""The tables that a report page holds, out of placed kernels: roles, single launches, modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.roofline.columns import coded, figures, texts
from kernelroof.roofline.place import numbers, ratio
from kernelroof.roofline.summary import role_of, with_roles

MOST_LAUNCHES = 20_000
"""Single launches that a page holds; of more, those of one role, path and step are summed."""
ROLE = ["phase", "role", "kind", "op", "kernel"]
_AMOUNTS = (
    *("launches", "time_ns", "share_pct", "ideal_ns", "recoverable_ns", "flops", "bytes", "intensity"),
    *("attained_flop_s", "attained_byte_s", "pct_of_roof"),
)
_SOURCES = ("time_source", "flops_source", "bytes_source")
_SHARES = ("dram_pct", "sm_pct")
_SPREAD = ("step_median_ns", "step_low_ns", "step_high_ns", "samples")


class Launches(NamedTuple):
    """`columns` of the page's launches and how they were summed, if they were."""

    columns: dict[str, Any]
    note: str | None


def roles(parts: Sequence[pd.DataFrame]) -> dict[str, Any]:
    """One row per kernel role, from one table a phase (in the page's order of phases).

    Args:
        parts: tables of `summary.kernel_table` with `advice`, sources, shares and spreads where known.
    """
    table = pd.concat([p.assign(_phase=i) for i, p in enumerate(parts)], ignore_index=True)
    for name in (*_SOURCES, *_SHARES, *_SPREAD, "advice", "kind", "op"):
        if name not in table:
            table[name] = None
    return {
        "phase": [int(i) for i in table["_phase"]],
        "label": texts(table["label"]),
        **{out: coded(table[name]) for out, name in (("module", "role"), ("kernel", "kernel"))},
        **{name: coded(table[name]) for name in ("kind", "op", "bound", "reason", "advice", *_SOURCES)},
        **{name: figures(table[name]) for name in (*_AMOUNTS, *_SHARES, *_SPREAD)},
    }


def modules(parts: Sequence[pd.DataFrame]) -> dict[str, Any]:
    """One row per module role, from one table of `summary.module_table` a phase."""
    table = pd.concat([p.assign(_phase=i) for i, p in enumerate(parts)], ignore_index=True)
    return {
        "phase": [int(i) for i in table["_phase"]],
        "module": coded(table["role"]),
        **{name: coded(table[name]) for name in ("kind", "bound", "reason")},
        **{name: figures(table[name]) for name in _AMOUNTS},
    }


def launches(kernels: pd.DataFrame, numbered: dict[tuple[Any, ...], int], most: int = MOST_LAUNCHES) -> Launches:
    """One row per launch, or per role, path and step where there are more than `most`.

    Args:
        kernels: placed launches of all phases on the page, with `role`, `op` (`summary.with_roles`).
        numbered: number of a role in `roles` by (phase, role, kind, op, kernel).
    """
    role = [numbered.get(key, -1) for key in _keys(kernels)]
    table = pd.DataFrame(
        {
            "role": role,
            "path": kernels["module"].astype("string"),
            "step": kernels["step"],
            "count": numbers(kernels["count"]),
            "time_ns": numbers(kernels["time_ns"]),
            "flops": numbers(kernels["flops"]),
            "bytes": numbers(kernels["dram_read_bytes"]) + numbers(kernels["dram_write_bytes"]),
            "ideal_ns": numbers(kernels["ideal_ns"]),
        }
    )
    table = table[table["role"] >= 0]
    note = None
    for keys, words in (
        (["role", "path", "step"], "a point stands for all launches of a role in one module and step"),
        (["role", "path"], "a point stands for all launches of a role in one module, over all steps"),
        (["role"], "a point stands for all launches of a role"),
    ):
        if len(table) <= most:
            break
        note = f"{len(kernels):,} launches were recorded: {words} (means of one launch); kernels.csv has every one"
        table = _summed(table, keys)
    if len(table) > most:
        table = table.sort_values("time_ns", ascending=False, kind="stable").head(most)
        note = f"{len(kernels):,} launches were recorded: the {most:,} roles with longest launches are here"
    columns = {
        "role": [int(r) for r in table["role"]],
        "path": coded(table["path"]),
        **{n: figures(table[n]) for n in ("step", "count", "time_ns", "flops", "bytes")},
        "pct_of_roof": figures(ratio(100 * numbers(table["ideal_ns"]), numbers(table["time_ns"]))),
    }
    return Launches(columns, note)


def number_roles(parts: Sequence[pd.DataFrame], phases: Sequence[str]) -> dict[tuple[Any, ...], int]:
    """The row of each role in `roles`, by (phase, role, kind, op, kernel)."""
    found: dict[tuple[Any, ...], int] = {}
    for phase, part in zip(phases, parts, strict=True):
        for key in _keys(part.assign(phase=phase)):
            found.setdefault(key, len(found))
    return found


def with_facts(table: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """A kernel table of one phase with the sources of its figures and ncu's shares of peak, weighted by time.

    Args:
        table: of `summary.kernel_table`.
        kernels: the placed launches of that phase.
    """
    rows = with_roles(kernels)
    keys = ROLE[1:]
    found = rows.groupby(keys, sort=False, dropna=False)
    facts = found[list(_SOURCES)].agg(_joined)
    weight = numbers(rows["time_ns"]) * numbers(rows["count"])
    for name in _SHARES:
        value = numbers(rows[name])
        work = rows[keys].assign(part=value * weight, of=np.where(np.isnan(value), np.nan, weight))
        sums = work.groupby(keys, sort=False, dropna=False)[["part", "of"]].sum(min_count=1)
        facts[name] = ratio(numbers(sums["part"]), numbers(sums["of"]))
    out: pd.DataFrame = table.merge(facts.reset_index(), on=keys, how="left", sort=False, validate="1:1")
    return out


def _summed(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Means of one launch over groups, weighted by their counts; null where a launch of the group lacks the figure."""
    work = table.copy()
    amounts = ["time_ns", "flops", "bytes", "ideal_ns"]
    for name in amounts:
        work[name] = work[name] * work["count"]
    for name in ("path", "step"):
        if name not in keys:
            work = work.drop(columns=name)
    grouped = work.groupby(keys, sort=False, dropna=False)
    sums = grouped[["count", *amounts]].sum().reset_index()
    known = grouped[amounts].count().reset_index()
    rows = grouped.size().to_numpy()
    for name in amounts:
        sums[name] = (sums[name] / sums["count"]).where(known[name].to_numpy() == rows)
    for name in ("path", "step"):
        if name not in sums:
            sums[name] = pd.NA
    summed: pd.DataFrame = sums
    return summed


def _joined(sources: pd.Series[str]) -> str | None:
    return " and ".join(sorted(set(sources.dropna().astype(str)))) or None


def _keys(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    rows = table if "role" in table else table.assign(role=[role_of(str(m)) for m in table["module"]])
    filled = rows[ROLE].astype("object").where(rows[ROLE].notna(), None)
    return list(filled.itertuples(index=False, name=None))
