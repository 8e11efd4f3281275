"""The table of learned corrections: reading it, and looking a place up in it."""

from __future__ import annotations

import csv
import os
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from math import exp, log
from typing import NamedTuple

from kernelroof.models.errors import ReportError
from kernelroof.models.kernel_work import KINDS

TABLE_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "efficiency.csv")
COLUMNS = ("gpu", "table", "part", "values")
ANY_GPU = "*"


class Correction(NamedTuple):
    """What was learned of one kind of kernel on one GPU."""

    terms: tuple[float, ...]
    axes: tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]
    """logarithms of the knots; the first and last are the limits of what was measured"""
    logs: tuple[float, ...]
    """logarithm of measured over rough time at each knot, last axis fastest"""
    windows: tuple[int, ...]
    """sliding windows that were measured; empty without one"""
    size_edges: tuple[float, ...]
    time_edges: tuple[float, ...]
    low: tuple[float, ...]
    """factors of the 10th percentile, by interval of the first axis, then of the expected time"""
    high: tuple[float, ...]

    def factor(self, place: tuple[float, ...]) -> tuple[float, bool]:
        """Return the correction at a place, and whether the place lies outside what was measured."""
        first, second, third = self.axes
        i, x, out_x = _locate(first, log(place[0]))
        j, y, out_y = _locate(second, log(place[1]))
        k, z, out_z = _locate(third, log(place[2]))
        logs, row = self.logs, len(third)
        a = (i * len(second) + j) * row + k
        b = a + len(second) * row
        near = _between(logs, a, row, y, z)
        return exp(near + x * (_between(logs, b, row, y, z) - near)), out_x or out_y or out_z

    def band(self, size: float, seconds: float) -> tuple[float, float]:
        """Return the factors of the 10th and 90th percentile around an expected time."""
        cell = bisect_right(self.size_edges, size) * (len(self.time_edges) + 1) + bisect_right(self.time_edges, seconds)
        return self.low[cell], self.high[cell]


class GpuFigures(NamedTuple):
    """A GPU whose kernels were measured, or (`like` another) one of the same architecture."""

    like: str
    sms: int
    byte_s: float
    l2_bytes: int
    """0 where unknown"""
    flop_s: dict[str, float]


class EfficiencyTable(NamedTuple):
    """The whole table."""

    gpus: dict[str, GpuFigures]
    corrections: dict[tuple[str, str], Correction]
    """by GPU and table name"""
    transfer: dict[str, tuple[float, float]]
    """by table name: factors of the band when one GPU's corrections are used for another"""


def _locate(knots: tuple[float, ...], at: float) -> tuple[int, float, bool]:
    """Return the interval, the place within it from 0 to 1, and whether the point had to be clamped."""
    last = len(knots) - 2
    # A hair of room, as logarithms of the limits themselves are rounded in the table.
    if at <= knots[0]:
        return 0, 0.0, at < knots[0] - 1e-3
    if at >= knots[-1]:
        return last, 1.0, at > knots[-1] + 1e-3
    i = bisect_right(knots, at) - 1
    low = knots[i]
    return i, (at - low) / (knots[i + 1] - low), False


def _between(logs: tuple[float, ...], at: int, row: int, y: float, z: float) -> float:
    """Interpolate in a square of the last two axes."""
    low = logs[at] + z * (logs[at + 1] - logs[at])
    at += row
    return low + y * (logs[at] + z * (logs[at + 1] - logs[at]) - low)


@lru_cache(maxsize=1)
def shipped_table() -> EfficiencyTable:
    """Return the table that comes with the package.

    Raises:
        ReportError: it is missing or damaged.
    """
    try:
        with open(TABLE_PATH, encoding="utf-8", newline="") as file:
            return parse_table(file)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ReportError(
            f"the efficiency table {TABLE_PATH} can't be read ({error})", "Install kernelroof again."
        ) from error


def parse_table(lines: Iterable[str]) -> EfficiencyTable:
    """Read the table's text; lines that start with # are for people."""
    gpus: dict[str, GpuFigures] = {}
    transfer: dict[str, tuple[float, float]] = {}
    parts: dict[tuple[str, str], dict[str, str]] = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        gpu, table, part, values = (row[column] for column in COLUMNS)
        if table == "figures":
            gpus[gpu] = _figures(gpu, _named(values))
        elif gpu == ANY_GPU:
            low, high = _factors(values)
            transfer[table] = low, high
        else:
            parts.setdefault((gpu, table), {})[part] = values
    return EfficiencyTable(gpus, {key: _correction(key[1], found) for key, found in parts.items()}, transfer)


def _figures(gpu: str, named: dict[str, str]) -> GpuFigures:
    fixed = {"like", "sms", "byte_s", "l2_bytes"}
    return GpuFigures(
        like=named.get("like", gpu),
        sms=int(named["sms"]),
        byte_s=float(named["byte_s"]),
        l2_bytes=int(named["l2_bytes"]),
        flop_s={name: float(value) for name, value in named.items() if name not in fixed},
    )


def _correction(table: str, parts: dict[str, str]) -> Correction:
    kind = KINDS[table.split()[0]]
    named = _named(parts["terms"])
    first, second, third = (tuple(log(float(knot)) for knot in parts[f"axis {name}"].split()) for name in kind.axes)
    logs = tuple(int(v) / 100 for part, values in parts.items() if part.startswith("at ") for v in values.split())
    size_edges, time_edges = _numbers(parts["band size"]), tuple(us * 1e-6 for us in _numbers(parts["band us"]))
    found = Correction(
        terms=tuple(float(named[name]) for name in kind.terms),
        axes=(first, second, third),
        logs=logs,
        windows=tuple(int(w) for w in parts.get("windows", "").split()),
        size_edges=size_edges,
        time_edges=time_edges,
        low=_factors(parts["band low"]),
        high=_factors(parts["band high"]),
    )
    cells = (len(size_edges) + 1) * (len(time_edges) + 1)
    if len(logs) != len(first) * len(second) * len(third) or not len(found.low) == len(found.high) == cells:
        raise ValueError(f"{table} is incomplete")
    return found


def _named(values: str) -> dict[str, str]:
    return dict(word.split("=") for word in values.split())


def _numbers(values: str) -> tuple[float, ...]:
    return tuple(float(word) for word in values.split())


def _factors(values: str) -> tuple[float, ...]:
    return tuple(exp(int(word) / 100) for word in values.split())
