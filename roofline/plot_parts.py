"""What the pictures of kernels share: names beside points, colours and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from kernelroof.parsers.kernel_names import cut
from kernelroof.roofline.figure import DPI, FAINT, INK, Roofs, extent, inches
from kernelroof.roofline.labels import Box, Mark, place_labels
from kernelroof.roofline.palette import BOUNDS, bound_marker
from kernelroof.roofline.plot_margin import AREA_PT2
from kernelroof.roofline.units import fixed
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

LABELS = 8
"""Kernels that are named."""


def name_points(
    axes: Axes,
    kernels: pd.DataFrame,
    marks: Sequence[Mark],
    roofs: Roofs,
    all_marks: Sequence[Mark],
    *,
    dotted: bool = False,
) -> list[Box]:
    """Name the kernels with most time (first in the table; `marks` in the same order), none over another.

    `dotted` puts a dot where a leader starts, for points that lie in one heap. Returns the names' boxes.
    """
    words = [f"{row['label']}  {fixed(row['share_pct'], 2)} %" for row in kernels.head(LABELS).to_dict("records")]
    texts = [axes.text(0, 0, cut(w, 46), transform=inches(axes), fontsize=8.5, color=INK, zorder=7) for w in words]
    sizes = [(b[2] - b[0], b[3] - b[1]) for b in (extent(axes, t) for t in texts)]
    found = place_labels(sizes, marks[: len(words)], extent(axes, axes.patch), *roofs, all_marks)
    boxes = []
    for text, mark, place in zip(texts, marks, found, strict=False):
        if place is None:
            text.remove()
            continue
        # A box's lower edge is the descent of the text, not its baseline.
        text.set_verticalalignment("bottom")
        text.set_position((place.box[0] / DPI, place.box[1] / DPI))
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
        axes.annotate(
            "",
            (place.nearest[0] / DPI, place.nearest[1] / DPI),
            xytext=(mark.x / DPI, mark.y / DPI),
            xycoords=inches(axes),
            textcoords=inches(axes),
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 1},
            zorder=6,
        )
        if dotted:
            x, y = axes.transData.inverted().transform((mark.x, mark.y))
            axes.plot(float(x), float(y), marker=".", markersize=3, color=INK, zorder=6)
        boxes.append(extent(axes, text))
    return boxes


def bound_handles(table: pd.DataFrame) -> list[Line2D]:
    """Legend entries: bounds by their share of the time."""
    shares = table.groupby("bound")["share_pct"].sum().sort_values(ascending=False)
    return [
        Line2D(
            [],
            [],
            linestyle="none",
            marker=bound_marker(str(bound)),
            markersize=9,
            markeredgecolor="white",
            color=BOUNDS.get(str(bound), BOUNDS["unknown"]),
            label=f"{bound}  {fixed(share, 2)} %",
        )
        for bound, share in shares.items()
    ]


def size_handles() -> list[Line2D]:
    """Legend entries: what the area of a circle stands for."""
    dot: dict[str, Any] = {"linestyle": "none", "marker": "o", "markeredgecolor": "white", "color": "#B5B5B5"}
    return [Line2D([], [], markersize=(AREA_PT2 * pct / 100) ** 0.5, label=f"{pct} %", **dot) for pct in (1, 10, 30)]
