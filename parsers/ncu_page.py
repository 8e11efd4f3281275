"""What every reader of Nsight Compute's output hands on: one row for each profiled kernel, base units.

`identity` has the columns of `IDENTITY`; `values` has one float column for each metric, by its real name
where it is known, in the base unit that `units` gives; `texts` has what is not a number. All share one index.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.parsers import nvtx_cells
from kernelroof.parsers.printed_numbers import Floats

IDENTITY = {
    "ID": "launch_id",
    "Process ID": "process",
    "Process Name": "program",
    "Kernel Name": "kernel",
    "Context": "context",
    "Stream": "stream",
    "Block Size": "block",
    "Grid Size": "grid",
    "Device": "device",
    "CC": "cc",
}
"""Header cell to identity column. The range columns are found by what their header says."""

PRODUCTS = {"Grid Size": "grid_blocks", "Block Size": "block_threads"}
"""Columns of the identity that hold the product of a triple, NaN where there is none."""
NUMBER_HEADERS = ("ID", "Process ID", "Context", "Stream")
OTHER_HEADERS = ("Host Name", "Kernel Time")
_TRIPLE = re.compile(r"\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?")


@dataclass(frozen=True)
class NcuPage:
    """One export as read; `labels` has the printed name of each metric that was printed under another one."""

    kind: str
    identity: pd.DataFrame
    values: pd.DataFrame
    texts: pd.DataFrame
    units: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)
    rules: pd.DataFrame = field(default_factory=pd.DataFrame)
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return len(self.identity)


def is_identity_header(header: str) -> bool:
    """Whether a header cell is about the launch and not a metric."""
    return (
        header in IDENTITY
        or header in OTHER_HEADERS
        or nvtx_cells.is_push_pop_header(header)
        or nvtx_cells.is_start_end_header(header)
    )


def identity_frame(cells: pd.DataFrame) -> pd.DataFrame:
    """The identity columns from the launch's cells as printed (header names as column names)."""
    out: pd.DataFrame = pd.DataFrame(index=cells.index)
    for header, name in IDENTITY.items():
        if header in cells:
            column = cells[header]
            out[name] = _integers(column) if header in NUMBER_HEADERS else _mapped(column, _tidy_for(name))
        else:
            out[name] = pd.Series(pd.NA, index=cells.index, dtype="Int64" if header in NUMBER_HEADERS else "string")
    for header, name in PRODUCTS.items():
        out[name] = _products(cells[header]) if header in cells else np.nan
    for name, test in (("range", nvtx_cells.is_push_pop_header), ("open_ranges", nvtx_cells.is_start_end_header)):
        headers = [h for h in cells.columns if test(str(h))]
        if headers:
            out[name] = _mapped(cells[headers[0]], nvtx_cells.range_path)
        else:
            out[name] = pd.Series(pd.NA, index=cells.index, dtype="string")
    return out


_TOLD: dict[str, tuple[tuple[str, ...], str, str]] = {
    "grid": (tuple(f"launch__grid_dim_{axis}" for axis in "xyz"), ",", ""),
    "block": (tuple(f"launch__block_dim_{axis}" for axis in "xyz"), ",", ""),
    "device": (("launch__device_id",), "", "cuda:"),
    "cc": (tuple(f"device__attribute_compute_capability_{part}" for part in ("major", "minor")), ".", ""),
}
"""Identity column to the metrics that tell it, what stands between their numbers, and before them."""


def launch_columns(values: pd.DataFrame, names: Iterable[str] = _TOLD) -> dict[str, Any]:
    """Grid, block, device and compute capability as the launch's own metrics tell them; null where they do not."""
    out: dict[str, Any] = {}
    for name in names:
        metrics, mark, start = _TOLD[name]
        first, *rest = (pd.Series(whole_numbers(values, metric)).astype("string") for metric in metrics)
        text = start + first
        for part in rest:
            text = text + mark + part
        out[name] = text.array
    return out


def whole_numbers(values: pd.DataFrame, name: str) -> Any:
    """A metric as nullable integers; all null where it was not collected."""
    if name not in values:
        return pd.array([None] * len(values), dtype="Int64")
    return pd.array(values[name].to_numpy(), dtype="Float64").astype("Int64")


def with_launch(identity: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """The identity with what its own columns lack taken from the launch's metrics (pages before 2023)."""
    known = launch_columns(values, [name for name in _TOLD if identity[name].isna().any()])
    filled = {name: identity[name].fillna(pd.Series(cells, identity.index)) for name, cells in known.items()}
    out: pd.DataFrame = identity.assign(**filled)
    return out


def triple(cell: str) -> str | None:
    """`(8192, 1, 1)` as `8192,1,1`; None where the cell is no triple."""
    found = _TRIPLE.fullmatch(cell.strip())
    return ",".join(found.groups()) if found else None


def _tidy_for(name: str) -> Callable[[str], str | None]:
    if name in ("grid", "block"):
        return triple
    if name == "device":
        return lambda cell: f"cuda:{cell.strip()}" if cell.strip().isdigit() else None
    return lambda cell: cell.strip() or None


def _integers(column: pd.Series[Any]) -> pd.Series[Any]:
    if pd.api.types.is_numeric_dtype(column):
        return column.astype("Int64")
    return pd.to_numeric(_mapped(column, lambda cell: re.sub(r"\D", "", cell) or None), errors="coerce").astype("Int64")


def _mapped(column: pd.Series[Any], function: Callable[[str], str | None]) -> pd.Series[Any]:
    """A text column through a function of its distinct values (there are few of them)."""
    codes, unique = _distinct(column)
    table = pd.array([*(function(u) for u in unique), None], dtype="string")
    out: pd.Series[Any] = pd.Series(table.take(codes), index=column.index)
    return out


def _products(column: pd.Series[Any]) -> Floats:
    """`(8192, 2, 1)` as 16384; NaN where a cell is no triple."""
    codes, unique = _distinct(column)
    sides = [triple(u) for u in unique]
    values = [float("nan") if s is None else float(math.prod(map(int, s.split(",")))) for s in sides]
    return np.array([*values, np.nan], dtype=np.float64)[codes]


def _distinct(column: pd.Series[Any]) -> tuple[npt.NDArray[np.intp], list[str]]:
    """Codes into the distinct cells of a column; -1, so the last of a table, where it has none."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, unique = column.cat.codes.to_numpy(), column.cat.categories
    else:
        codes, unique = pd.factorize(column.astype("object"), use_na_sentinel=True)
    return np.where(codes < 0, len(unique), codes).astype(np.intp), [str(u) for u in unique]
