"""What a few counted launches say about all others: figures spread over each class.

A class's figure is the mean of its counted members; where it depends on the context, it lies on the line
between the first and the last step, and how far the middle step is off that line is the residual.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.parsers.metric_book import json_rows
from kernelroof.profile.representatives import JUDGED, TOLERANCE, spread_of

Floats = npt.NDArray[np.float64]

COUNTED, REPRESENTED, INTERPOLATED = "counted", "represented", "interpolated"
PARTS = "flops_by_type"
"""The text that holds numbers: FLOPs by type."""


class Residual(NamedTuple):
    """How far a middle step is off the line between first and last: (counted - line) / counted."""

    role: str
    kernel: str
    figure: str
    step: int
    share: float


class Spread(NamedTuple):
    """Figures for every launch.

    `figures` has the index of the launches: the figures, `counted_as` (counted, represented, interpolated;
    null where nothing is known) and `why` (why nothing is). `residuals` are one per class and figure that
    depends on the context and was counted at three steps.
    """

    figures: pd.DataFrame
    residuals: list[Residual]
    counted: int
    known: int
    total: int

    def line(self) -> str:
        """How many launches were counted of how many, and how good the interpolation is."""
        share = 100 * self.known / self.total if self.total else 0.0
        text = (
            f"counted {self.counted:,} of {self.total:,} launches; with their like they stand for "
            f"{self.known:,} ({share:.0f} %)"
        )
        if not self.residuals:
            return text
        worst = max(self.residuals, key=lambda r: abs(r.share))
        return (
            f"{text}; in between steps the interpolation is off by at most {100 * abs(worst.share):.1f} % "
            f"({worst.figure} of {worst.role} at step {worst.step})"
        )


def spread(classified: pd.DataFrame, figures: pd.DataFrame) -> Spread:
    """Spread counted figures to every launch of their class.

    Args:
        classified: all launches, see `representatives.classify`.
        figures: the counted ones, by the index of `classified`. Numbers are spread; texts are taken from
            the class's first member, but the numbers in `PARTS` are spread like any. A number that a member
            lacks is taken from the others.

    Counted launches keep their own figures. A class whose members still differ by more than the tolerance
    represents nothing.
    """
    numeric = [c for c in figures.columns if _is_number(figures[c])]
    texts = [c for c in figures.columns if c not in numeric]
    size = len(classified)
    values = {name: np.full(size, np.nan) for name in numeric}
    words: dict[str, npt.NDArray[np.object_]] = {name: np.full(size, None, object) for name in texts}
    how: npt.NDArray[np.object_] = np.full(size, None, object)
    why: npt.NDArray[np.object_] = np.array([None if pd.isna(v) else v for v in classified["never"]], object)
    position = pd.Series(np.arange(size), index=classified.index)
    at = position.loc[figures.index].to_numpy(dtype=np.int64)
    table = classified.assign(_row=np.arange(size), step=classified["step"].fillna(-1).astype("int64"))
    rows_of = {number: group for number, group in table.groupby("class", sort=False) if int(str(number)) >= 0}
    counted = table.loc[figures.index].assign(**{name: figures[name] for name in figures.columns})
    residuals: list[Residual] = []
    with_members = set()
    for number, members in counted[counted["class"] >= 0].groupby("class", sort=True):
        with_members.add(number)
        rows = rows_of[number]
        row, steps = rows["_row"].to_numpy(dtype=np.int64), rows["step"].to_numpy(np.float64)
        apart = spread_of(members) if set(JUDGED) <= set(members.columns) else 0.0
        if apart > TOLERANCE:
            why[row] = f"counted members of its class differ by {100 * apart:.0f} %"
            continue
        varies = bool(members["varies"].any()) and members["step"].nunique() > 1
        how[row] = INTERPOLATED if varies else REPRESENTED
        for name in numeric:
            values[name][row] = _figure(name, members, steps, varies, residuals)
        for name in texts:
            words[name][row] = _parts(members, steps, varies) if name == PARTS else members[name].iloc[0]
    lost = (classified["class"] >= 0).to_numpy(bool) & ~classified["class"].isin(with_members).to_numpy(bool)
    why[lost] = "no launch of its class was counted"
    for name in numeric:
        values[name][at] = figures[name].astype("Float64").to_numpy(dtype=np.float64, na_value=np.nan)
    for name in texts:
        words[name][at] = figures[name].to_numpy(dtype=object)
    how[at] = COUNTED
    known = np.array([h is not None for h in how], bool)
    why[known] = None
    index = classified.index
    columns = {
        name: _column(values[name], figures[name], index)
        if name in values
        else pd.Series(words[name], index).astype(figures[name].dtype)
        for name in figures.columns
    }
    out = pd.DataFrame(columns, index=index).assign(
        counted_as=pd.array(how, dtype="string"), why=pd.array(why, dtype="string")
    )
    return Spread(out, residuals, len(figures), int(known.sum()), size)


def _figure(name: str, members: pd.DataFrame, steps: Floats, varies: bool, residuals: list[Residual]) -> Floats:
    """One figure of a class at these steps, from its counted members; notes the residual of the middle step."""
    numbers = members[name].astype("Float64")
    if not varies:
        known = numbers.dropna().to_numpy(dtype=np.float64)
        return np.full(len(steps), known.mean() if len(known) else np.nan)
    by_step = numbers.groupby(members["step"]).mean().dropna()
    if len(by_step) < 2:
        return np.full(len(steps), np.nan)
    x, y = by_step.index.to_numpy(dtype=np.float64), by_step.to_numpy(dtype=np.float64)
    line = y[0] + (y[-1] - y[0]) * (steps - x[0]) / (x[-1] - x[0])
    if name in JUDGED:
        for step, seen in zip(x[1:-1], y[1:-1], strict=True):
            guess = y[0] + (y[-1] - y[0]) * (step - x[0]) / (x[-1] - x[0])
            if seen:
                one = members.iloc[0]
                share = float((seen - guess) / seen)
                residuals.append(Residual(str(one["role"]), str(one["kernel"]), name, int(step), share))
    return np.asarray(np.maximum(line, 0.0))


def _parts(members: pd.DataFrame, steps: Floats, varies: bool) -> npt.NDArray[np.object_]:
    """The FLOPs by type of a class at these steps, each type's like a figure of its own, so that they add up."""
    known = [{} if pd.isna(text) else json.loads(str(text)) for text in members[PARTS]]
    figures = {}
    for kind in dict.fromkeys(kind for each in known for kind in each):
        numbers = pd.array([each.get(kind) for each in known], dtype="Float64")
        figures[kind] = _figure(kind, members.assign(**{kind: numbers}), steps, varies, [])
    return json_rows(figures, len(steps))


def _is_number(column: pd.Series[float]) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _column(values: Floats, like: pd.Series[float], index: pd.Index) -> pd.Series[float]:
    """Numbers in the dtype of the counted column: whole ones are rounded."""
    if pd.api.types.is_integer_dtype(like):
        missing = np.isnan(values)
        whole = np.rint(np.where(missing, 0, values)).astype(np.int64)
        integers: pd.Series[float] = pd.Series(pd.arrays.IntegerArray(whole, missing), index, dtype="Int64")
        return integers
    reals: pd.Series[float] = pd.Series(values, index, dtype="float64")
    return reals
