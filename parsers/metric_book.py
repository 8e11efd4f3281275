"""Looking metrics up by name: the first one that a report has, with its real name kept, or why there is none.

A value counts only where its unit is the one expected, so a unit that is not understood gives null and a
reason, never a number that is off by a power of ten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.parsers.printed_numbers import Floats

_PRINTED = 4096
_SAMPLE = 1024
IMPOSSIBLE = float(1 << 60)
"""No counter of one launch gets there, and what is summed or multiplied from less still fits 64 bits."""


class Candidate(NamedTuple):
    """One way to get a quantity: values (NaN where it has none) and the metric names it comes from."""

    values: Floats
    source: str


@dataclass(frozen=True)
class Pick:
    """A quantity by row: which candidate each value comes from (-1: none), and why a null is null."""

    values: Floats
    sources: tuple[str, ...]
    which: Floats
    reason: str

    def scaled(self, factor: float) -> Pick:
        """The same quantity times a factor."""
        return Pick(self.values * factor, self.sources, self.which, self.reason)


@dataclass
class Book:
    """The metrics of one page.

    Args:
        values: one float column for each metric, base units.
        units: base unit of each column.
        labels: printed name of each metric that was printed under another.
    """

    values: pd.DataFrame
    units: dict[str, str]
    labels: dict[str, str] = field(default_factory=dict)
    time_ns: Floats | None = None

    @property
    def rows(self) -> int:
        return len(self.values)

    def nothing(self) -> Floats:
        """A column of nulls."""
        return np.full(self.rows, np.nan)

    def get(self, name: str, *units: str) -> Floats | None:
        """A metric's values, null where impossible; None where the report lacks it or gives it in another unit."""
        if name not in self.values or self.units.get(name, "") not in units:
            return None
        values = self.values[name].to_numpy(dtype=np.float64)
        return np.where(_impossible(values), np.nan, values)

    def candidate(self, name: str, *units: str) -> list[Candidate]:
        """The metric as a candidate, if the report has it."""
        values = self.get(name, *units)
        return [] if values is None else [Candidate(values, self.printed(name))]

    def printed(self, name: str) -> str:
        """The name under which the report has a metric."""
        label = self.labels.get(name)
        return f"{label} ({name})" if label else name

    def total(self, base: str, unit: str) -> list[Candidate]:
        """A counter's sum over the launch: as collected, else rate x time, else rate per cycle x cycles.

        Args:
            base: metric name without rollup (`dram__bytes_read`).
            unit: its base unit ("byte", "inst", "cycle", "sector", or "" for a plain count).
        """
        plain = (unit,) if unit in ("byte", "sector") else (unit, "")
        out = self.candidate(f"{base}.sum", *plain)
        rate_units = ("hz", "cycle/s") if unit == "cycle" else (f"{unit or '1'}/s",)
        rate = self.get(f"{base}.sum.per_second", *rate_units)
        if rate is not None and self.time_ns is not None:
            out.append(Candidate(_whole(rate * self.time_ns / 1e9), f"{base}.sum.per_second x time"))
        per_cycle = self.get(f"{base}.sum.per_cycle_elapsed", f"{unit or '1'}/cycle", "")
        cycles = None if per_cycle is None else self.cycles(base.partition("__")[0])
        if per_cycle is not None and cycles is not None:
            name = self.printed(f"{base}.sum.per_cycle_elapsed")
            out.append(Candidate(_whole(per_cycle * cycles.values), f"{name} x {cycles.source}"))
        return out

    def cycles(self, unit: str) -> Candidate | None:
        """Elapsed cycles of a unit of the chip: as collected, else its clock x time."""
        for part in dict.fromkeys((unit, *(("sm", "smsp") if unit in ("sm", "smsp") else ()))):
            name = f"{part}__cycles_elapsed.avg"
            values = self.get(name, "cycle", "")
            if values is not None:
                return Candidate(values, name)
        for part in dict.fromkeys((unit, *(("sm", "smsp", "gpc") if unit in ("sm", "smsp") else ()))):
            name = f"{part}__cycles_elapsed.avg.per_second"
            clock = self.get(name, "hz")
            if clock is not None and self.time_ns is not None:
                return Candidate(clock * self.time_ns / 1e9, f"{self.printed(name)} x time")
        return None

    def first(self, candidates: Sequence[Candidate], names: Iterable[str]) -> Pick:
        """For each row the first candidate that has a value.

        Args:
            candidates: in order of preference.
            names: the metrics that were looked for, for the reason of a null.
        """
        values, which = self.nothing(), np.full(self.rows, -1.0)
        for number, candidate in enumerate(candidates):
            take = np.isnan(values) & ~np.isnan(candidate.values)
            values[take] = candidate.values[take]
            which[take] = number
        sources = tuple(c.source for c in candidates)
        if np.isnan(values).all():
            return Pick(values, sources, which, self.why_null(list(names)))
        asked = [n for n in names if n in self.values] or list(dict.fromkeys(sources))
        return Pick(values, sources, which, f"{_either(asked)} has no value for this launch")

    def why_null(self, names: list[str]) -> str:
        """Why a quantity that comes from these metrics is null."""
        present = [n for n in names if n in self.values]
        if not present:
            return f"{_either(names)} not in the report"
        if wrong := [n for n in present if _impossible(self.values[n].to_numpy(dtype=np.float64)).any()]:
            return f"{wrong[0]} holds an impossible value (negative, or {IMPOSSIBLE:.1e} and more)"
        odd = [n for n in present if self.values[n].notna().any()]
        if odd:
            return (
                f"{odd[0]} is given in '{self.units.get(odd[0], '')}', which is not understood here, or lacks a partner"
            )
        return f"{_either(present)} has no value in the report"


def _impossible(values: Floats) -> npt.NDArray[np.bool_]:
    return (values < 0) | (values >= IMPOSSIBLE)


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _whole(values: Floats) -> Floats:
    """Counts are whole numbers; products of rates are nearly so."""
    return np.rint(values)


def plus(*parts: Floats) -> Floats:
    """The sum where every part has a value, else null."""
    return np.asarray(np.sum(parts, axis=0), dtype=np.float64)


def known_sum(parts: Sequence[Floats], rows: int) -> Floats:
    """The sum of the parts that have a value; null only where none has one."""
    if not parts:
        return np.full(rows, np.nan)
    stack = np.vstack(parts)
    total = np.nansum(stack, axis=0)
    return np.where(np.isnan(stack).all(axis=0), np.nan, total)


def json_rows(columns: dict[str, Floats], rows: int, number: str = "%d") -> npt.NDArray[np.object_]:
    """One JSON object for each row, without the keys that are null there; None where all are.

    Args:
        columns: values by key.
        rows: number of rows, for when there are no columns.
        number: how a value is printed; whole numbers are rounded, not cut.
    """
    if not columns:
        return np.full(rows, None, dtype=object)
    places = _first_of_equal(columns)
    if places is None:
        return _json_rows(columns, rows, number)
    first, back = places
    return _json_rows({key: values[first] for key, values in columns.items()}, len(first), number)[back]


def _first_of_equal(columns: dict[str, Floats]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """The first of each kind of equal rows, and for each row the number of its kind; None where most differ."""
    some = {key: values[:_SAMPLE] for key, values in columns.items()}
    kind: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    for part in (some, columns):
        rows = len(next(iter(part.values())))
        kind = np.zeros(rows, dtype=np.int64)
        for values in part.values():
            codes, found = pd.factorize(values)
            kind, kinds = pd.factorize(kind * (len(found) + 1) + codes + 1)
            if len(kinds) > rows // 2:
                return None
    return np.flatnonzero(np.diff(np.maximum.accumulate(kind), prepend=-1)), kind


def _json_rows(columns: dict[str, Floats], rows: int, number: str) -> npt.NDArray[np.object_]:
    out = np.full(rows, None, dtype=object)
    keys = list(columns)
    nulls = [np.isnan(values) for values in columns.values()]
    pattern = np.zeros(rows, dtype=np.int64)
    for bit, null in enumerate(nulls):
        if not null.all():
            pattern |= ~null * np.int64(1 << bit)
    for bits in pd.unique(pattern):
        mine = [key for k, key in enumerate(keys) if bits >> k & 1]
        if not mine:
            continue
        here = pattern == bits
        every = bool(here.all())
        out[here] = _json_texts({key: columns[key] if every else columns[key][here] for key in mine}, number)
    return out


def _json_texts(columns: dict[str, Floats], number: str) -> list[str]:
    """One JSON object for each row of columns without nulls."""
    whole = {key: np.rint(values).astype(np.int64) if number == "%d" else values for key, values in columns.items()}
    varying = [values for values in whole.values() if (values != values[0]).any()]
    # What is the same in every row is printed once. The rest is printed in one go for many rows: to print
    # them one by one takes twice as long.
    cells = (f'"{k}": ' + (number if (v != v[0]).any() else number % v[0]) for k, v in whole.items())
    text = "{" + ", ".join(cells) + "}"
    rows = len(next(iter(whole.values())))
    if not varying:
        return [text] * rows
    flat = np.column_stack(varying)
    out: list[str] = []
    for begin in range(0, rows, _PRINTED):
        part = flat[begin : begin + _PRINTED]
        out += ("\n".join([text] * len(part)) % tuple(part.ravel().tolist())).split("\n")
    return out
