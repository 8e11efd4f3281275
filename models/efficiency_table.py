"""The table of learned corrections: reading it, and looking a place up in it."""

# Annotations are not postponed here: NamedTuple would compile each at import, half of the time that importing takes.

import os
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from math import exp, log
from typing import NamedTuple

from kernelroof.models.errors import ReportError
from kernelroof.models.kernel_work import KINDS, Chip

TABLE_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "efficiency.csv")
COLUMNS = ("gpu", "table", "terms", "first", "second", "third", "windows", "low", "high", "logs")


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
    l2_bytes: int
    """0 where unknown"""
    chips: dict[str, Chip]
    """by the dtype that is computed in"""


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
        with open(TABLE_PATH, encoding="utf-8") as file:
            return parse_table(file)
    except (OSError, ValueError, KeyError, IndexError, StopIteration) as error:
        raise ReportError(
            f"the efficiency table {TABLE_PATH} can't be read ({error})", "Install kernelroof again."
        ) from error


def parse_table(lines: Iterable[str]) -> EfficiencyTable:
    """Read the table's text; lines that start with # are for people."""
    gpus: dict[str, GpuFigures] = {}
    bands: dict[str, tuple[float, float]] = {}
    edges: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {}
    corrections: dict[tuple[str, str], Correction] = {}
    # Cells hold neither commas nor quotes; the csv module would cost a tenth of the time that importing this may take.
    rows = (line.rstrip("\r\n").split(",") for line in lines if not line.startswith("#"))
    names = next(rows)
    for row in (dict(zip(names, cells, strict=True)) for cells in rows):
        gpu, table = row["gpu"], row["table"]
        if table == "figures":
            gpus[gpu] = _figures(gpu, dict(word.split("=") for word in row["terms"].split()))
        elif table == "edges":
            edges[gpu] = _numbers(row["low"]), tuple(us * 1e-6 for us in _numbers(row["high"]))
        elif table == "transfer":
            bands[gpu] = _factors(row["low"])[0], _factors(row["high"])[0]
        else:
            corrections[gpu, table] = _correction(row, edges[kind_of(table)])
    return EfficiencyTable(gpus, corrections, {name: bands[pool_of(name)] for _, name in corrections})


def kind_of(table: str) -> str:
    """Name of the kind of kernel that a table corrects."""
    return table.partition(" ")[0]


def pool_of(table: str) -> str:
    """Name of the kernels whose transfer between GPUs is judged together: one dtype's products, one phase."""
    return table if table.startswith("gemm") else kind_of(table)


def _figures(gpu: str, named: dict[str, str]) -> GpuFigures:
    fixed = {"like", "sms", "byte_s", "l2_bytes"}
    peaks = {name: float(value) for name, value in named.items() if name not in fixed}
    chips = {name: Chip(int(named["sms"]), peak, float(named["byte_s"])) for name, peak in peaks.items()}
    return GpuFigures(named.get("like", gpu), int(named["l2_bytes"]), chips)


def _correction(row: dict[str, str], edges: tuple[tuple[float, ...], tuple[float, ...]]) -> Correction:
    first, second, third = (tuple(map(log, _numbers(row[name]))) for name in ("first", "second", "third"))
    logs = tuple([int(word) / 100 for word in row["logs"].split()])
    terms, low, high = _numbers(row["terms"]), _factors(row["low"]), _factors(row["high"])
    cells = (len(edges[0]) + 1) * (len(edges[1]) + 1)
    if len(logs) != len(first) * len(second) * len(third) or not len(low) == len(high) == cells:
        raise ValueError(f"{row['table']} is incomplete")
    if len(terms) != len(KINDS[kind_of(row["table"])].terms):
        raise ValueError(f"{row['table']} lacks terms")
    windows = tuple(int(word) for word in row["windows"].split())
    return Correction(terms, (first, second, third), logs, windows, *edges, low, high)


def _numbers(values: str) -> tuple[float, ...]:
    return tuple([float(word) for word in values.split()])


def _factors(values: str) -> tuple[float, ...]:
    return tuple([exp(int(word) / 100) for word in values.split()])
