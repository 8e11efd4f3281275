"""The curves of a measured sweep, the estimate's beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from kernelroof.roofline.figure import FAINT, INK, new_figure, save_png
from kernelroof.roofline.sweep_points import axis_of
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

_TINTS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKS = ("o", "s", "^", "D", "v", "P")
_PANELS = (
    ("tokens_per_s", "ideal_tokens_per_s", "tokens/s", "measured", "the model's ideal", True),
    ("wall_ms", "ideal_ms", "time of a forward, ms", "measured", "the model's ideal", True),
    ("intensity", "ridge_flop_per_byte", "the model's FLOP/B", "intensity", "ridge", True),
    ("pct_of_ideal", "pct_of_roof", "share, %", "ideal of wall", "roofs of kernels", False),
)


def plot_sweep(
    table: pd.DataFrame,
    path: str | os.PathLike[str],
    *,
    title: str,
    subtitle: str,
    formats: Sequence[str] = ("png",),
) -> Path:
    """Draw tokens/s, time, intensity and shares of every phase against the batch (or the prompt).

    Args:
        table: sweep.csv.

    Raises:
        OutputError: the picture can't be written.
    """
    axis = axis_of(table)
    other = "prompt" if axis == "batch" else "batch"
    phases = list(dict.fromkeys(table["phase"]))
    height = 3.6 * len(phases) + 1.1
    figure, _ = new_figure(14.0, height)
    bottom = 0.12 if len(phases) == 1 else 0.07
    figure.subplots_adjust(left=0.055, right=0.985, top=1 - 1.15 / height, bottom=bottom, wspace=0.26, hspace=0.5)
    figure.text(0.055, 0.985, title, fontsize=14, fontweight="bold", color=INK, va="top")
    figure.text(0.055, 0.985 - 0.32 / height, subtitle, fontsize=9.5, color=FAINT, va="top")
    for row, phase in enumerate(phases):
        for column, panel in enumerate(_PANELS):
            axes = figure.add_subplot(len(phases), len(_PANELS), row * len(_PANELS) + column + 1)
            _panel(axes, table[table["phase"] == phase], axis, other, panel)
            axes.set_title(
                f"{phase}: {panel[2]}\nsolid: {panel[3]}; dashed: {panel[4]}", fontsize=9, color=INK, loc="left"
            )
    values = sorted(table[other].unique())
    if len(values) > 1:
        handles = [
            Line2D([], [], color=tint, marker=mark, label=f"{other} {value}")
            for value, (tint, mark) in ((v, _look(i)) for i, v in enumerate(values))
        ]
        figure.legend(handles=handles, loc="upper right", bbox_to_anchor=(0.985, 0.995), ncols=6, frameon=False)
    return save_png(figure, path, formats)


def _panel(axes: Axes, rows: pd.DataFrame, axis: str, other: str, panel: tuple[str, str, str, str, str, bool]) -> None:
    measured, beside, _, _, _, log = panel
    for at, (_, curve) in enumerate(rows.groupby(other, sort=True)):
        curve = curve.sort_values(axis)
        tint, mark = _look(at)
        axes.plot(curve[axis], curve[measured], color=tint, marker=mark, markersize=6)
        axes.plot(curve[axis], curve[beside], color=tint, linestyle="--", marker=mark, markerfacecolor="white",
                  markersize=5, linewidth=1.2)  # fmt: skip
        if measured == "wall_ms":
            low, high = curve["wall_low_ms"], curve["wall_high_ms"]
            axes.vlines(curve[axis], low, high, color=tint, linewidth=1.4)
    ticks = sorted(rows[axis].unique())
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(t) for t in ticks])
    axes.set_xlabel(f"{axis}{' (sequences)' if axis == 'batch' else ' (tokens)'}", fontsize=9.5, color=INK)
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        # more than 100 % is a fault of some figure: it must be seen, not cut off
        axes.set_ylim(0, max(105.0, 1.05 * float(rows[[measured, beside]].astype(float).max().max())))
    axes.grid(True, which="major", color="#E4E4E4", linewidth=0.7)
    axes.tick_params(labelsize=9, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _look(at: int) -> tuple[str, str]:
    """Colour and mark of a curve: a pair of its own for the first 36."""
    return _TINTS[at % len(_TINTS)], _MARKS[(at + at // len(_TINTS)) % len(_MARKS)]
