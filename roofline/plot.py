"""One roofline per phase: every kernel role, the roofs, and the model's own estimate."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.figure import (
    DPI,
    INK,
    draw_roofs,
    log_axes,
    new_figure,
    roofline_limits,
    save_png,
    write_subtitle,
)
from kernelroof.roofline.labels import Box, Mark
from kernelroof.roofline.palette import kind_colour, kind_edge, kind_marker
from kernelroof.roofline.place import aggregate
from kernelroof.roofline.plot_margin import AREA_PT2, WHY_NOT_PLOTTED, legend, list_beneath
from kernelroof.roofline.plot_parts import name_points
from kernelroof.roofline.summary import labels, with_roles
from matplotlib.axes import Axes

_LABEL_LEAST_PCT = 0.5
_WEIGHTY_PCT = 0.2
"""Share of the kernels' time from which a role sets the limits of the axes."""
_LEAST_AREA_PT2 = 20.0
_EDGE_AREA_PT2 = 40.0
_FULL_RIM_PT2 = 60.0
"""From this area a mark has a white rim of full width; a small one would be all rim."""


class PhasePicture(NamedTuple):
    """What a phase picture shows. Boxes are in pixels of the figure."""

    path: Path
    plotted: pd.DataFrame
    """kernel roles with a point"""
    listed: pd.DataFrame
    """kernel roles without one; `why` says why"""
    label_boxes: tuple[Box, ...]
    other_boxes: tuple[Box, ...]
    """texts in the axes that labels must not cover"""


def phase_roofline(
    placed: pd.DataFrame,
    ceilings: Ceilings,
    phase: str,
    estimate: Mapping[str, Any] | None,
    path: str | os.PathLike[str],
    *,
    subtitle: str = "",
    limits: tuple[float, float, float, float] | None = None,
    steps: int = 1,
    wall_ns: float | None = None,
    formats: Sequence[str] = ("png",),
) -> PhasePicture:
    """Draw the roofline of one phase into a PNG.

    Args:
        placed: placed kernels; only rows of `phase` are drawn, one circle per kernel role.
        estimate: "phase": (FLOPs, bytes) and "modules": {kind: (FLOPs, bytes)} as the model itself says;
            drawn as hollow markers on the roof, because an estimate is ideal. Either may be missing.
        subtitle: what was run, for people.
        limits: axes (x0, x1, y0, y1), such as `phase_limits`; fitted to this phase if None.
        steps: forwards of the phase; times are told per step.
        wall_ns: wall time of all of them, which shares are then of; of the kernels' time if None.
        formats: of "png", "svg", "pdf"; files beside `path`, which ends in .png.

    Raises:
        OutputError: the file can't be written.
    """
    table = _roles(placed, phase, wall_ns)
    share_of = "wall time" if wall_ns else "kernel time"
    plotted, listed = table[table["why"] == ""], table[table["why"] != ""]
    hollow = estimated_points(estimate, ceilings)

    figure, _ = new_figure(13, 8.6)
    axes = figure.add_axes((0.095, 0.29, 0.68, 0.61))
    log_axes(axes, "arithmetic intensity (FLOP per byte of memory traffic)", "attained rate", "FLOP/s")
    points = list(zip(plotted["intensity"], plotted["attained_flop_s"], strict=True))
    limits = limits or roofline_limits(_limiting(plotted, hollow, ceilings), ceilings)
    axes.set_xlim(limits[:2])
    axes.set_ylim(limits[2:])
    areas = [max(_LEAST_AREA_PT2, AREA_PT2 * share / 100) for share in plotted["share_pct"]]
    shown = [on_axes(point, limits) for point in points]
    marks = [_mark(axes, *point, area) for point, area in zip(shown, areas, strict=True)]
    marks += [_mark(axes, x, y, 120) for _, x, y in hollow]
    dot: dict[str, Any] = {"alpha": 0.8, "edgecolor": "white", "zorder": 3, "clip_on": False}
    # In the order of the table, by time, so that small marks lie on top of large ones.
    for point, at, area, kind in zip(points, shown, areas, plotted["kind"].astype(str), strict=True):
        edge = edge_shape(point, at)
        marker = kind_marker(kind) if edge == "o" else edge
        size, rim = (area if edge == "o" else _EDGE_AREA_PT2), (0.8 if area > _FULL_RIM_PT2 else 0.3)
        axes.scatter(*at, s=size, marker=marker, color=kind_colour(kind), linewidth=rim, **dot)
    roofs = draw_roofs(axes, ceilings, marks)
    draw_estimate(axes, hollow)
    worth = plotted[plotted["share_pct"] >= _LABEL_LEAST_PCT]
    label_boxes = name_points(axes, worth, marks[: len(worth)], roofs, marks, dotted=True)
    outside = sum(at != point for at, point in zip(shown, points, strict=True))
    legend(figure, table, hollow, outside, share_of)
    list_beneath(figure, listed, share_of, steps)
    figure.text(0.095, 0.962, f"{phase}: kernels on the roofline", fontsize=15, weight="bold", color=INK)
    write_subtitle(figure, 0.095, 0.907, subtitle or ceilings.note)
    return PhasePicture(save_png(figure, path, formats), plotted, listed, tuple(label_boxes), tuple(roofs.texts))


def phase_limits(
    placed: pd.DataFrame, ceilings: Ceilings, estimates: Mapping[str, Mapping[str, Any] | None]
) -> tuple[float, float, float, float]:
    """Axes (x0, x1, y0, y1) that hold every phase of `estimates`, for pictures to be laid side by side."""
    points: list[tuple[float, float]] = []
    for phase, estimate in estimates.items():
        table = _roles(placed, phase)
        points += _limiting(table[table["why"] == ""], estimated_points(estimate, ceilings), ceilings)
    return roofline_limits(points, ceilings)


def _roles(placed: pd.DataFrame, phase: str, wall_ns: float | None = None) -> pd.DataFrame:
    """Kernel roles of a phase, most time first, with share, label and why one has no point."""
    rows = with_roles(placed[placed["phase"] == phase])
    sums = aggregate(rows, ["role", "kind", "op", "kernel"])
    table: pd.DataFrame = sums.sort_values(by="time_ns", ascending=False)
    total_ns = wall_ns or float(table["time_ns"].sum()) or 1.0
    table["share_pct"] = 100 * table["time_ns"].astype("float64") / total_ns
    table["label"] = labels(table)
    table["why"] = [_why(row) for row in table.to_dict("records")]
    return table


def _limiting(
    plotted: pd.DataFrame, hollow: Sequence[tuple[str, float, float]], ceilings: Ceilings
) -> list[tuple[float, float]]:
    """The points that set the limits of the axes.

    Roles without weight may lie decades away; they are drawn on the edge, lest all else shrink. One above the
    compute roof is evidence of something, and always within the axes.
    """
    points = zip(plotted["intensity"], plotted["attained_flop_s"], plotted["share_pct"], strict=True)
    weighty = [(x, y) for x, y, share in points if share >= _WEIGHTY_PCT or y > ceilings.flop_s]
    return [*weighty, *((x, y) for _, x, y in hollow)]


def estimated_points(estimate: Mapping[str, Any] | None, ceilings: Ceilings) -> list[tuple[str, float, float]]:
    """(kind, intensity, FLOP/s) of each estimate that has FLOPs and bytes; the phase's kind is ""."""
    if not estimate:
        return []
    named = [(str(kind), work) for kind, work in dict(estimate.get("modules") or {}).items()]
    if estimate.get("phase"):
        named.append(("", estimate["phase"]))
    return [
        (kind, flops / moved, ceilings.roof_flop_s(flops / moved))
        for kind, (flops, moved) in named
        if flops > 0 and moved > 0
    ]


def on_axes(point: tuple[float, float], limits: tuple[float, float, float, float]) -> tuple[float, float]:
    """The point, or the nearest one within the limits (x0, x1, y0, y1)."""
    return min(max(point[0], limits[0]), limits[1]), min(max(point[1], limits[2]), limits[3])


def edge_shape(point: tuple[float, float], at: tuple[float, float]) -> str:
    """A circle, or for a point on the edge of the axes a triangle towards where it really is."""
    if at == point:
        return "o"
    if at[1] != point[1]:
        return "v" if point[1] < at[1] else "^"
    return "<" if point[0] < at[0] else ">"


def draw_estimate(axes: Axes, points: Sequence[tuple[str, float, float]]) -> None:
    """Hollow diamonds for kinds of modules, a hollow star for the phase."""
    for kind, x, y in points:
        shape, size, edge = ("D", 62, kind_edge(kind)) if kind else ("*", 300, INK)
        axes.scatter([x], [y], s=size, marker=shape, facecolor="none", edgecolor="white", linewidth=3.4, zorder=4)
        axes.scatter([x], [y], s=size, marker=shape, facecolor="none", edgecolor=edge, linewidth=1.6, zorder=5)


def _why(row: Mapping[Any, Any]) -> str:
    """Why a kernel role has no point; empty if it has one."""
    if pd.isna(row["flops"]):
        return WHY_NOT_PLOTTED["not known"]
    if row["flops"] == 0 and row["bytes"] == 0:
        return WHY_NOT_PLOTTED["no work"]
    if row["flops"] == 0:
        return WHY_NOT_PLOTTED["no FLOPs"]
    if row["bytes"] == 0:
        return WHY_NOT_PLOTTED["no bytes"]
    return "" if row["time_ns"] - row["unplaced_ns"] > 0 else WHY_NOT_PLOTTED["no time"]


def _mark(axes: Axes, x: float, y: float, area_pt2: float) -> Mark:
    px, py = axes.transData.transform((x, y))
    return Mark(float(px), float(py), (area_pt2**0.5 / 2) * DPI / 72)
