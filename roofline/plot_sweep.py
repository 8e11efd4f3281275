"""The curves of a measured sweep, the estimate's beside them."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from kernelroof.roofline.figure import FAINT, INK, new_figure, save_png
from kernelroof.roofline.sweep_doubts import doubt_lines, doubts_of, roofs_line
from kernelroof.roofline.sweep_points import axis_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

_TINTS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKS = ("o", "s", "^", "D", "v", "P")
_DOUBT = "#B00020"
_WIDTH = 14.0
_LEFT, _RIGHT = 0.055, 0.975
_PANEL, _BETWEEN = 2.55, 1.15
"""Height of a row of panels and of the space above each, inches."""
_LINE = 0.19
_LETTERS, _CURVES_A_LINE = 185, 9
"""Letters of a note on one line across the picture; curves on one line of the legend."""
_STEPS: tuple[tuple[float, ...], ...] = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 2, 3, 4, 5, 6, 7, 8, 9))
_TICKS, _MOST_TICKS = 3, 8


class _Panel(NamedTuple):
    """What one panel draws: columns of sweep.csv (`thin`: drawn where it is known), words, a logarithmic axis."""

    title: str
    solid: tuple[str, str]
    dashed: tuple[str, str]
    thin: tuple[str, str] | None
    log: bool


_PANELS = (
    _Panel(
        "tokens/s", ("tokens_per_s", "measured"), ("ideal_tokens_per_s", "ideal"),
        ("expected_tokens_per_s", "expected"), log=True,
    ),
    _Panel("time of a forward, ms", ("wall_ms", "measured"), ("ideal_ms", "ideal"), ("expected_ms", "expected"),
           log=True),
    _Panel("the model's FLOP/B", ("intensity", "intensity"), ("ridge_flop_per_byte", "ridge"), None, log=True),
    _Panel("share of the time at the roofs, %", ("pct_of_ideal", "ideal of wall"), ("pct_of_roof", "of kernels"), None,
           log=False),
)  # fmt: skip


def plot_sweep(
    table: pd.DataFrame,
    path: str | os.PathLike[str],
    *,
    title: str,
    formats: Sequence[str] = ("png",),
) -> Path:
    """Draw tokens/s, time, intensity and shares of every phase against the batch (or the prompt).

    The roofs stand under the title; doubtful points have a ring, and the doubts stand beneath the curves.

    Args:
        table: sweep.csv.

    Raises:
        OutputError: the picture can't be written.
    """
    axis = axis_of(table)
    other = "prompt" if axis == "batch" else "batch"
    phases = list(dict.fromkeys(table["phase"]))
    curves = sorted(table[other].unique())
    heads = _heads(table)
    notes = [line for words in doubt_lines(table, axis) for line in textwrap.wrap(f"○ {words}", _LETTERS)]
    legend = math.ceil(len(curves) / _CURVES_A_LINE) if len(curves) > 1 else 0
    top = 0.5 + _LINE * (len(heads) + 1.4 * legend)
    bottom = 0.55 + (0.15 + _LINE * len(notes) if notes else 0)
    height = top + bottom + len(phases) * (_PANEL + _BETWEEN) - 0.5
    figure, _ = new_figure(_WIDTH, height)
    figure.text(_LEFT, 1 - 0.12 / height, title, fontsize=14, fontweight="bold", color=INK, va="top")
    _lines(figure, heads, 1 - 0.44 / height, FAINT)
    _lines(figure, notes, (0.08 + _LINE * len(notes)) / height, _DOUBT)
    grid = figure.add_gridspec(
        len(phases), len(_PANELS), left=_LEFT, right=_RIGHT, wspace=0.25, hspace=_BETWEEN / _PANEL,
        top=1 - (top + _BETWEEN - 0.5) / height, bottom=bottom / height,
    )  # fmt: skip
    for row, phase in enumerate(phases):
        rows = table[table["phase"] == phase]
        for column, panel in enumerate(_PANELS):
            axes = figure.add_subplot(grid[row, column])
            _draw(axes, rows, axis, other, panel)
            axes.set_title(f"{phase}: {panel.title}\n{_styles(rows, panel)}", fontsize=8.5, color=INK, loc="left")
    if legend:
        handles = [
            Line2D([], [], color=tint, marker=mark, label=f"{other} {value}")
            for value, (tint, mark) in ((v, _look(i)) for i, v in enumerate(curves))
        ]
        at = (_LEFT - 0.006, 1 - (top - 0.02 - 1.4 * _LINE * legend) / height)
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=at, ncols=_CURVES_A_LINE, frameon=False,
                      borderaxespad=0, fontsize=9)  # fmt: skip
    return save_png(figure, path, formats)


def _heads(table: pd.DataFrame) -> list[str]:
    """What stands under the title."""
    words = "bars: each forward's fastest to slowest bare repeat, the marker its median, as means over forwards; "
    words += "ideal: the model's closed form"
    if table["expected_ms"].notna().any():
        words += "; expected: kernels as measured on such a GPU"
    return [
        line
        for part in (f"{roofs_line(table)}; every figure is at these roofs", words)
        for line in textwrap.wrap(part, _LETTERS - 10)
    ]


def _lines(figure: Figure, lines: Sequence[str], top: float, color: str) -> None:
    if lines:
        figure.text(_LEFT, top, "\n".join(lines), fontsize=9, color=color, va="top", linespacing=1.3, parse_math=False)


def _styles(rows: pd.DataFrame, panel: _Panel) -> str:
    words = f"solid: {panel.solid[1]}; dashed: {panel.dashed[1]}"
    return words if panel.thin is None or rows[panel.thin[0]].isna().all() else f"{words}; dotted: {panel.thin[1]}"


def _draw(axes: Axes, rows: pd.DataFrame, axis: str, other: str, panel: _Panel) -> None:
    drawn = [panel.solid[0], panel.dashed[0]]
    for at, (_, curve) in enumerate(rows.groupby(other, sort=True)):
        curve = curve.sort_values(axis)
        tint, mark = _look(at)
        x, y = curve[axis], curve[panel.solid[0]].astype(float)
        axes.plot(x, y, color=tint, marker=mark, markersize=6)
        axes.plot(x, curve[panel.dashed[0]].astype(float), color=tint, linestyle="--", marker=mark,
                  markerfacecolor="white", markersize=5, linewidth=1.2)  # fmt: skip
        if panel.thin is not None and curve[panel.thin[0]].notna().any():
            axes.plot(x, curve[panel.thin[0]].astype(float), color=tint, linestyle=":", linewidth=1.0, marker="x",
                      markersize=4)  # fmt: skip
            drawn.append(panel.thin[0])
        if panel.solid[0] == "wall_ms":
            low, high = curve["wall_low_ms"].astype(float), curve["wall_high_ms"].astype(float)
            axes.vlines(x, low, high, color=tint, linewidth=1.4)
            drawn += ["wall_low_ms", "wall_high_ms"]
        doubtful = [bool(doubts_of({str(k): v for k, v in row.items()})) for row in curve.to_dict("records")]
        if panel.solid[0] != "intensity":
            axes.plot(x[doubtful], y[doubtful], linestyle="none", marker="o", markersize=11, markerfacecolor="none",
                      markeredgecolor=_DOUBT, markeredgewidth=0.9)  # fmt: skip
    _x_axis(axes, sorted(int(v) for v in rows[axis].unique()), axis)
    values = rows[list(dict.fromkeys(drawn))].astype(float).to_numpy().ravel()
    _y_axis(axes, values[np.isfinite(values) & (values > 0)], panel.log)
    axes.grid(True, which="major", color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _x_axis(axes: Axes, values: list[int], axis: str) -> None:
    """The measured batches or prompts, logarithmic, with a tick at each."""
    ticks = x_ticks(values)
    span = math.log2(ticks[-1] / ticks[0])
    axes.set_xscale("log", base=2)
    axes.set_xlim(ticks[0] / 2 ** (0.05 * span), ticks[-1] * 2 ** (0.05 * span))
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    shown: list[int] = []
    for tick in (ticks[0], ticks[-1], *ticks[1:-1]):
        # As wide as its digits: what would touch another label keeps its mark alone.
        near = 0.05 + 0.02 * len(str(tick))
        if all(abs(math.log2(tick / s)) >= near * span for s in shown):
            shown.append(tick)
    axes.set_xticklabels([str(t) if t in shown else "" for t in ticks])
    axes.set_xlabel(f"{axis}{' (sequences)' if axis == 'batch' else ' (tokens)'}", fontsize=9.5, color=INK)


def x_ticks(values: Sequence[int]) -> list[int]:
    """The values themselves, with whole numbers between or beside them where they are fewer than three."""
    ticks = sorted(set(values))
    while len(ticks) < _TICKS:
        low, high = ticks[0], ticks[-1]
        middle = round(math.sqrt(low * high))
        if len(ticks) == 2 and low < middle < high:
            ticks.insert(1, middle)
        elif len(ticks) == 1 and low % 2 == 0:
            ticks = [low // 2, low, 2 * low]
        else:
            ticks.append(high + max(1, high - low))
    return ticks


def _y_axis(axes: Axes, values: np.ndarray, log: bool) -> None:
    if not log:
        # more than 100 % is a fault of some figure: it must be seen, not cut off
        axes.set_ylim(0, max(105.0, 1.05 * float(values.max(initial=0))))
        return
    if not len(values):
        axes.text(0.5, 0.5, "not known", transform=axes.transAxes, ha="center", va="center", color=FAINT)
        axes.set_yticks([])
        return
    low, high = float(values.min()), float(values.max())
    pad = max((high / low) ** 0.07, 1.08)
    axes.set_yscale("log")
    axes.set_ylim(low / pad, high * pad)
    ticks = log_ticks(low / pad, high * pad)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticklabels([_tick(t) for t in ticks])


def log_ticks(low: float, high: float) -> list[float]:
    """At least three round values between two positive ones, for a logarithmic axis."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in _STEPS:
        ticks = [s * 10.0**e for e in range(first, last + 1) for s in steps if low <= s * 10.0**e <= high]
        if len(ticks) >= _TICKS:
            return ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]
    for bins in (4, 5, 6, 8, 12):
        ticks = [float(t) for t in MaxNLocator(bins).tick_values(low, high) if low <= t <= high]
        if len(ticks) >= _TICKS:
            break
    return ticks


def _tick(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / min(size, 1e3 if letter == 'k' else size):.6g} {letter}"
    return f"{value:.6g}"


def _look(at: int) -> tuple[str, str]:
    """Colour and mark of a curve: a pair of its own for the first 36."""
    return _TINTS[at % len(_TINTS)], _MARKS[(at + at // len(_TINTS)) % len(_MARKS)]
