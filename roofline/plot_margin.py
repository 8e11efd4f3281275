"""What stands beside and beneath the axes of a phase picture: the legend, and kernels without a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from kernelroof.roofline.figure import FAINT, INK
from kernelroof.roofline.palette import kind_colour, kind_marker
from kernelroof.roofline.units import fixed, quantity, seconds
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

_LISTED = 5
AREA_PT2 = 1600.0
"""Area of a circle that stands for all of the kernels' time, in square points."""
WHY_NOT_PLOTTED = {
    "no FLOPs": "no FLOPs: bytes only",
    "no bytes": "no bytes: FLOPs only",
    "no work": "no FLOPs, no bytes",
    "not known": "FLOPs or bytes not known",
    "no time": "recorded duration is 0",
}


def legend(
    figure: Figure, table: pd.DataFrame, hollow: Sequence[tuple[str, float, float]], outside: int, share_of: str
) -> None:
    """Beside the axes, where it can cover nothing: kinds by their time, areas, estimates.

    Args:
        share_of: what shares are of, in words.
    """
    dot: dict[str, Any] = {"linestyle": "none", "markeredgecolor": "white"}
    ring: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "none"}
    kinds = table.groupby("kind")["share_pct"].sum().sort_values(ascending=False)
    first = [
        Line2D(
            [],
            [],
            color=kind_colour(str(kind)),
            marker=kind_marker(str(kind)),
            markersize=9,
            label=f"{kind}  {fixed(share, 2)} %",
            **dot,
        )
        for kind, share in kinds.items()
    ]
    sizes = [
        Line2D([], [], color="#B5B5B5", marker="o", markersize=(AREA_PT2 * pct / 100) ** 0.5, label=f"{pct} %", **dot)
        for pct in (1, 10, 30)
    ]
    if outside:
        words = f"off the axes: {outside} kernel roles"
        sizes.append(Line2D([], [], color="#8A8A8A", marker="v", linestyle="none", markersize=6, label=words))
    estimates = [
        Line2D([], [], marker="*", markersize=14, markeredgecolor=INK, label="the whole phase", **ring),
        Line2D([], [], marker="D", markersize=7, markeredgecolor=FAINT, label="a kind of module", **ring),
    ]
    side_legend(figure, first, f"colour and shape: kind,\nshare of {share_of}", 0.915)
    side_legend(figure, sizes, f"area: share of {share_of}", 0.555, labelspacing=1.1, handletextpad=1.2)
    if hollow:
        side_legend(figure, estimates, "model's own estimate, ideal", 0.40)


def side_legend(figure: Figure, handles: list[Line2D], title: str, top: float, **spacing: float) -> None:
    """A legend beside the axes, where it can cover nothing; nothing for no handles."""
    if not handles:
        return
    legend = figure.legend(
        handles=handles,
        title=title,
        loc="upper left",
        bbox_to_anchor=(0.785, top),
        frameon=False,
        alignment="left",
        fontsize=9,
        title_fontsize=9.5,
        labelcolor=INK,
        **spacing,
    )
    legend.get_title().set_color(INK)


def list_beneath(figure: Figure, listed: pd.DataFrame, share_of: str, steps: int = 1) -> None:
    """Kernel roles that have no place on logarithmic axes, in one column per cause; their times per step."""
    top, left, width = 0.205, 0.095, 0.89
    if listed.empty:
        figure.text(left, top, "every kernel of this phase has a point", fontsize=9, color=FAINT)
        return
    share = float(listed["share_pct"].sum())
    each = "; times per step" if steps > 1 else ""
    listed = listed.assign(time_ns=listed["time_ns"].astype("float64") / steps)
    causes = [(why, listed[listed["why"] == why]) for why in listed["why"].unique()]
    figure.text(
        left,
        top,
        f"not on the axes: {len(listed)} kernel roles, {fixed(share, 2)} % of {share_of}{each}",
        fontsize=9.5,
        weight="bold",
        color=INK,
    )
    step = width / max(2, len(causes))
    chars = int(step * figure.get_figwidth() * 72 / (8 * 0.602)) - 3
    for column, (why, rows) in enumerate(causes):
        lines = [f"{why}  ({len(rows)}: {seconds(float(rows['time_ns'].sum()) / 1e9, 3)})"]
        for row in rows.head(_LISTED).to_dict("records"):
            lines.append(_listed_line(row, chars))
        rest = rows.iloc[_LISTED:]
        if len(rest):
            lines.append(f"and {len(rest)} more  {seconds(float(rest['time_ns'].sum()) / 1e9, 3)}")
        figure.text(
            left + column * step,
            top - 0.022,
            "\n".join(lines),
            fontsize=8,
            family="DejaVu Sans Mono",
            color=INK,
            va="top",
            linespacing=1.45,
        )


def _listed_line(row: Mapping[str, Any], chars: int) -> str:
    figures = seconds(float(row["time_ns"]) / 1e9, 3)
    if row["why"] == WHY_NOT_PLOTTED["no FLOPs"] and pd.notna(row["attained_byte_s"]):
        figures += f"  {quantity(float(row['attained_byte_s']), 'B/s', 3)}"
    room = chars - len(figures) - 2
    label = str(row["label"])
    label = label if len(label) <= room else f"{label[: room - 1]}…"
    return f"{label}  {figures}"
