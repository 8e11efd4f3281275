"""The card of a report without bytes or FLOPs: DRAM share against SM share. No roofline point is invented."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.parsers.kernel_names import cut
from kernelroof.roofline.figure import DPI, FAINT, INK, Roofs, extent, new_figure, save_png, write_subtitle
from kernelroof.roofline.labels import Mark
from kernelroof.roofline.palette import BOUNDS, bound_marker
from kernelroof.roofline.place import HEALTHY_PCT, numbers
from kernelroof.roofline.plot_margin import AREA_PT2, side_legend
from kernelroof.roofline.plot_parts import bound_handles, name_points, size_handles
from kernelroof.roofline.units import seconds
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

_STRIP = -9.0
"""Where a kernel stands on an axis whose share is not known: outside of 0 to 100 %."""
_LISTED = 4


class ShareCard(NamedTuple):
    """What was drawn: kernels with both shares, with one, with none."""

    path: Path
    both: int
    one: int
    none: int


def share_card(
    kernels: pd.DataFrame,
    path: str | os.PathLike[str],
    *,
    title: str,
    subtitle: str,
    why: str,
    formats: Sequence[str] = ("png",),
) -> ShareCard:
    """Draw kernels (`kernel_groups.kernels_of`) by their shares of peak into a PNG.

    Args:
        why: why there is no intensity, printed beneath.

    Raises:
        OutputError: the file can't be written.
    """
    sm, floor, dram = (numbers(kernels[c]) for c in ("sm_pct", "sm_pct_at_least", "dram_pct"))
    at_least = np.isnan(sm) & ~np.isnan(floor)
    x, y = np.where(np.isnan(sm), floor, sm), dram
    figure, _ = new_figure(13, 8.6)
    axes = figure.add_axes((0.095, 0.33, 0.68, 0.56))
    captions = _frame(axes, bool(np.isnan(x).any()), bool(np.isnan(y).any()))
    known = ~(np.isnan(x) & np.isnan(y))
    px, py = np.where(np.isnan(x), _STRIP, x), np.where(np.isnan(y), _STRIP, y)
    marks: list[Mark] = []
    shown = kernels[known]
    for i in np.flatnonzero(known):
        row = kernels.iloc[i]
        area = min(max(30.0, AREA_PT2 * float(row["share_pct"]) / 100), 700.0)
        tint = BOUNDS.get(str(row["bound"]), BOUNDS["unknown"])
        face = "white" if at_least[i] else tint
        edge = tint if at_least[i] else "white"
        axes.scatter(
            px[i],
            py[i],
            s=area,
            marker=bound_marker(str(row["bound"])),
            facecolor=face,
            alpha=0.85,
            edgecolor=edge,
            linewidth=1.8,
            zorder=3,
            clip_on=False,
        )
        if at_least[i]:
            axes.annotate(
                "",
                (px[i] + 5, py[i]),
                xytext=(px[i], py[i]),
                arrowprops={"arrowstyle": "->", "color": tint, "linewidth": 1.5},
                zorder=4,
            )
        cx, cy = axes.transData.transform((px[i], py[i]))
        marks.append(Mark(float(cx), float(cy), (area**0.5 / 2) * DPI / 72))
    name_points(axes, shown, marks, Roofs([extent(axes, t) for t in captions], []), marks)
    of = "the launches" if kernels["time_ns"].isna().all() else "the time"
    side_legend(figure, bound_handles(kernels), f"bound, share of {of}", 0.905)
    side_legend(figure, size_handles(), f"area: share of {of}", 0.69, labelspacing=1.1, handletextpad=1.2)
    if at_least.any():
        ring = Line2D([], [], marker="o", markersize=9, linestyle="none", markerfacecolor="white", markeredgecolor=INK)
        ring.set_label("SM instruction units\n(the SM share is at least this)")
        side_legend(figure, [ring], "hollow, with an arrow", 0.48)
    _beneath(figure, kernels, why)
    figure.text(0.095, 0.962, title, fontsize=15, weight="bold", color=INK)
    write_subtitle(figure, 0.095, 0.902, subtitle)
    both = int((~np.isnan(x) & ~np.isnan(y)).sum())
    return ShareCard(save_png(figure, path, formats), both, int(known.sum()) - both, int((~known).sum()))


def _frame(axes: Axes, strip_x: bool, strip_y: bool) -> list[Text]:
    """Linear axes of percentages, the quarters that the verdicts name, strips for what is not known.

    Returns the words in it, which labels must not cover.
    """
    captions = []
    low_x, low_y = (-15 if strip_x else 0, -15 if strip_y else 0)
    axes.set_xlim(low_x, 104)
    axes.set_ylim(low_y, 104)
    axes.set_xlabel("SM share of peak (%)", fontsize=10, color=INK)
    axes.set_ylabel("DRAM share of peak (%)", fontsize=10, color=INK)
    ticks = range(0, 101, 20)
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)
    axes.tick_params(labelsize=9, colors=INK)
    axes.grid(True, color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for value in (axes.axhline, axes.axvline):
        value(HEALTHY_PCT, color=FAINT, linewidth=0.9, linestyle=":", zorder=1)
    axes.plot([HEALTHY_PCT, 100], [HEALTHY_PCT, 100], color=FAINT, linewidth=0.9, linestyle=":", zorder=1)
    for words, x, y, ha, va in (
        ("memory-bound", 1, 101, "left", "bottom"),
        ("SM-bound", 101, 1, "right", "bottom"),
        ("under 60 % of both: latency or inefficient", 1, 1, "left", "bottom"),
    ):
        captions.append(axes.text(x, y, words, fontsize=8.5, color=FAINT, ha=ha, va=va, zorder=2))
    shade: dict[str, Any] = {"facecolor": "#F3F3F3", "edgecolor": "none", "zorder": 0}
    if strip_x:
        axes.add_patch(Rectangle((low_x, low_y), -low_x - 1, 104 - low_y, **shade))
        upright: dict[str, Any] = {"rotation": 90, "fontsize": 8.5, "color": FAINT, "ha": "center", "va": "center"}
        captions.append(axes.text((low_x - 1) / 2, 60, "SM % not in the report", **upright))
    if strip_y:
        axes.add_patch(Rectangle((low_x, low_y), 104 - low_x, -low_y - 1, **shade))
        at = axes.text(103, low_y + 2, "DRAM % not in the report", fontsize=8.5, color=FAINT, ha="right", va="center")
        captions.append(at)
    return captions


def _beneath(figure: Figure, kernels: pd.DataFrame, why: str) -> None:
    """The figures of the kernels with most time, and why there is no intensity."""
    lines = [f"{'kernel':<48}{'launches':>9}{'time':>10}{'DRAM':>8}{'SM':>9}{'tensor':>8}{'occup.':>8}   bound"]
    for row in kernels.head(_LISTED).to_dict("records"):
        label = cut(str(row["label"]), 46)
        sm = _percent(row["sm_pct"]) if not pd.isna(row["sm_pct"]) else _percent(row["sm_pct_at_least"], "≥")
        lines.append(
            f"{label:<48}{int(row['launches']):>9}{_time(row['time_ns']):>10}{_percent(row['dram_pct']):>8}{sm:>9}"
            f"{_percent(row['tensor_pct']):>8}{_percent(row['occupancy_pct']):>8}   {row['bound']}"
        )
    if len(kernels) > _LISTED:
        lines.append(f"and {len(kernels) - _LISTED} more")
    text = figure.text
    text(0.095, 0.245, "\n".join(lines), fontsize=8.2, family="DejaVu Sans Mono", color=INK, va="top", linespacing=1.45)
    said = textwrap.wrap(f"intensity: not known. {why}", 150)
    said = said if len(said) <= 3 else [*said[:2], f"{said[2][:140]}…"]
    text(0.095, 0.095, "\n".join(said), fontsize=8.8, color=INK, va="top", linespacing=1.4)


def _percent(value: float, sign: str = "") -> str:
    return "–" if pd.isna(value) else f"{sign}{value:.1f} %"


def _time(value: Any) -> str:
    return "–" if pd.isna(value) else seconds(float(value) / 1e9, 3)
