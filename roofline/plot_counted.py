"""The roofline of counted kernels on one clock: hierarchical roofs, each kernel at its DRAM, L2 and L1 intensity."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.figure import (
    DPI,
    FAINT,
    INK,
    Roofs,
    draw_roof,
    log_axes,
    new_figure,
    roofline_limits,
    save_png,
    write_subtitle,
)
from kernelroof.roofline.labels import Mark
from kernelroof.roofline.palette import BOUNDS, bound_marker
from kernelroof.roofline.plot import edge_shape, on_axes
from kernelroof.roofline.plot_margin import AREA_PT2, WHY_NOT_PLOTTED, list_beneath, side_legend
from kernelroof.roofline.plot_parts import LABELS, bound_handles, name_points, size_handles
from kernelroof.roofline.report_ceilings import ReportCeilings
from kernelroof.roofline.units import plain_type, quantity
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

_STYLES = {"DRAM": (1.8, "-"), "L2": (1.2, "--"), "L1": (1.2, ":")}
_LEVEL_MARKS = {"l2": "s", "l1": "D"}
_LEAST_AREA, _MOST_AREA, _EDGE_AREA = 22.0, 700.0, 44.0
_VERDICTS = 4
_CROSSING_PX = 26.0
"""Words along a roof keep this far from where another roof crosses it."""


class Estimate(NamedTuple):
    """One phase as the model itself says: work of one forward."""

    name: str
    flops: float
    bytes: float


class CountedPicture(NamedTuple):
    """What was drawn: kernels with a point, and those without one (`why` says why)."""

    path: Path
    plotted: pd.DataFrame
    listed: pd.DataFrame
    roofs: tuple[str, ...]


def counted_roofline(
    kernels: pd.DataFrame,
    found: ReportCeilings,
    path: str | os.PathLike[str],
    *,
    title: str,
    subtitle: str,
    types: Sequence[str] = (),
    estimates: Sequence[Estimate] = (),
    verdicts: bool = True,
    formats: Sequence[str] = ("png",),
) -> CountedPicture:
    """Draw kernels (`kernel_groups.kernels_of`) under the roofs of their clock into a PNG.

    Args:
        verdicts: print what is said of the kernels; false where that is of another clock.
        types: the types that the kernels' FLOPs are of; their compute roofs are drawn besides the headline's.

    Raises:
        OutputError: the file can't be written.
    """
    table = kernels.assign(why=[_why(row) for row in kernels.to_dict("records")])
    plotted, listed = table[table["why"] == ""], table[table["why"] != ""]
    figure, _ = new_figure(13, 8.6)
    axes = figure.add_axes((0.095, 0.29, 0.68, 0.60))
    log_axes(axes, "arithmetic intensity (FLOP per byte; DRAM unless marked)", "attained rate", "FLOP/s")
    points = list(zip(plotted["intensity"].astype(float), plotted["attained_flop_s"].astype(float), strict=True))
    main = found.ceilings() or _stand_in(found, points)
    stars = [
        (e.name, e.flops / e.bytes, main.roof_flop_s(e.flops / e.bytes))
        for e in estimates
        if e.bytes > 0 and e.flops > 0
    ]
    inner = _inner_points(plotted)
    limits = roofline_limits([*points, *((x, y) for _, x, y, _ in inner), *((x, y) for _, x, y in stars)], main)
    axes.set_xlim(limits[:2])
    axes.set_ylim(limits[2:])
    shown = [on_axes(point, limits) for point in points]
    shapes = [edge_shape(point, at) for point, at in zip(points, shown, strict=True)]
    areas = [min(max(_LEAST_AREA, AREA_PT2 * share / 100), _MOST_AREA) for share in plotted["share_pct"]]
    marks = [_mark(axes, x, y, area) for (x, y), area in zip(shown, areas, strict=True)]
    others = [_mark(axes, x, y, 40) for _, x, y, _ in inner] + [_mark(axes, x, y, 200) for _, x, y in stars]
    tints = [BOUNDS.get(str(b), BOUNDS["unknown"]) for b in plotted["bound"]]
    _draw_inner(axes, plotted, inner)
    dot: dict[str, Any] = {"alpha": 0.8, "edgecolor": "white", "linewidth": 0.8, "zorder": 3, "clip_on": False}
    kinds = [bound_marker(str(b)) for b in plotted["bound"]]
    for at, shape, kind, area, tint in zip(shown, shapes, kinds, areas, tints, strict=True):
        axes.scatter(
            *at, s=area if shape == "o" else _EDGE_AREA, marker=kind if shape == "o" else shape, color=tint, **dot
        )
        if shape == "o" and area > 4 * _LEAST_AREA:
            axes.scatter(*at, s=7, color=INK, zorder=6)
    roofs, drawn = _draw_roofs(axes, found, main, types, [*marks, *others])
    for name, x, y in stars:
        shape, size = ("*", 300) if name == "prefill" else ("P", 160)
        axes.scatter([x], [y], s=size, marker=shape, facecolor="white", edgecolor=INK, linewidth=1.5, zorder=5)
    name_points(axes, plotted, marks, roofs, [*marks, *others])
    _legend(figure, table, inner, stars, sum(shape != "o" for shape in shapes))
    if len(listed):
        list_beneath(figure, listed, "kernel time")
    elif verdicts:
        _verdicts_beneath(figure, plotted)
    figure.text(0.095, 0.962, title, fontsize=15, weight="bold", color=INK)
    write_subtitle(figure, 0.095, 0.902, subtitle)
    return CountedPicture(save_png(figure, path, formats), plotted, listed, drawn)


def _why(row: Mapping[Any, Any]) -> str:
    """Why a kernel has no point; empty if it has one."""
    if pd.isna(row["flops"]) or pd.isna(row["bytes"]):
        return WHY_NOT_PLOTTED["not known"]
    if row["flops"] == 0 or row["bytes"] == 0:
        return WHY_NOT_PLOTTED[
            "no work" if row["flops"] == row["bytes"] else "no FLOPs" if row["flops"] == 0 else "no bytes"
        ]
    return WHY_NOT_PLOTTED["no time"] if pd.isna(row["attained_flop_s"]) else ""


def _stand_in(found: ReportCeilings, points: Sequence[tuple[float, float]]) -> Ceilings:
    """Limits for the axes where a roof is missing; nothing of it is drawn as a roof."""
    top = max([y for _, y in points], default=1e12) * 10
    dram = found.memory.get("DRAM")
    return Ceilings(found.gpu, top, dram.rate if dram else top / 10, None, "", "report", None, "")


def _inner_points(plotted: pd.DataFrame) -> list[tuple[str, float, float, float]]:
    """(level, intensity, FLOP/s, DRAM intensity) at L2 and L1 of the kernels with most time."""
    out = []
    for row in plotted.head(LABELS).to_dict("records"):
        for level in ("l2", "l1"):
            x = row[f"intensity_{level}"]
            if not pd.isna(x) and x > 0:
                out.append((level, float(x), float(row["attained_flop_s"]), float(row["intensity"])))
    return out


def _draw_inner(axes: Axes, plotted: pd.DataFrame, inner: Sequence[tuple[str, float, float, float]]) -> None:
    for level, x, y, dram in inner:
        axes.plot([dram, x], [y, y], color=FAINT, linewidth=0.8, zorder=2)
        axes.scatter(
            [x], [y], s=34, marker=_LEVEL_MARKS[level], facecolor="white", edgecolor=INK, linewidth=1.1, zorder=4
        )


def _draw_roofs(
    axes: Axes, found: ReportCeilings, main: Ceilings, types: Sequence[str], marks: Sequence[Mark]
) -> tuple[Roofs, tuple[str, ...]]:
    """Every memory level up to the highest compute roof, and the compute roofs that matter."""
    x0, x1 = axes.get_xlim()
    y0, y1 = axes.get_ylim()
    wanted = [found.headline, *types]
    compute = {plain_type(t): roof for t in wanted if t and (roof := found.of_type(t)) is not None}
    top = max((roof.rate for roof in compute.values()), default=y1)
    texts, lines, drawn = [], [], []
    crossings = [(c.rate / m.rate, c.rate) for c in compute.values() for m in found.memory.values()]
    pixels = [axes.transData.transform(c) for c in crossings]
    marks = [*marks, *(Mark(float(x), float(y), _CROSSING_PX) for x, y in pixels)]
    for level, roof in found.memory.items():
        begin, end = max(x0, y0 / roof.rate), min(x1, top / roof.rate)
        if end <= begin:
            continue
        width, style = _STYLES[level]
        words = f"{level} {quantity(roof.rate, 'B/s', 4)} ({roof.origin})"
        got = draw_roof(
            axes, words, (begin, begin * roof.rate), (end, end * roof.rate), marks, width=width, style=style
        )
        texts += got.texts
        lines += got.lines
        drawn.append(words)
    fastest = max((roof.rate for roof in found.memory.values()), default=top / x0)
    for at, (name, roof) in enumerate(compute.items()):
        begin = min(max(x0, roof.rate / fastest), x1 / 2)
        words = f"{name} {quantity(roof.rate, 'FLOP/s', 4)}, dense ({roof.origin}, {roof.clock})"
        width, style = (1.8, "-") if at == 0 else (1.2, "-.")
        room = (min(begin, x0 * (x1 / x0) ** 0.45), roof.rate)
        got = draw_roof(
            axes, words, (begin, roof.rate), (x1, roof.rate), marks, width=width, style=style, words_from=room
        )
        texts += got.texts
        lines += got.lines
        drawn.append(words)
    return Roofs(texts, lines), tuple(drawn)


def _mark(axes: Axes, x: float, y: float, area_pt2: float) -> Mark:
    px, py = axes.transData.transform((x, y))
    return Mark(float(px), float(py), (area_pt2**0.5 / 2) * DPI / 72)


def _verdicts_beneath(figure: Figure, plotted: pd.DataFrame) -> None:
    """What is to be said of the kernels with most time."""
    lines: list[str] = []
    for row in plotted.head(_VERDICTS).to_dict("records"):
        words = textwrap.wrap(f"{row['label']}: {row['verdict']}", 165, subsequent_indent="    ")
        lines += words[:2]
    figure.text(0.095, 0.205, "\n".join(lines), fontsize=9, color=INK, va="top", linespacing=1.5)


def _legend(
    figure: Figure,
    table: pd.DataFrame,
    inner: Sequence[tuple[str, float, float, float]],
    stars: Sequence[tuple[str, float, float]],
    outside: int,
) -> None:
    ring: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "white", "markeredgecolor": INK}
    levels = [
        Line2D([], [], marker=_LEVEL_MARKS[level], markersize=6, label=f"per byte of {level.upper()}", **ring)
        for level in dict.fromkeys(i[0] for i in inner)
    ]
    side_legend(figure, bound_handles(table), "bound, share of the time", 0.905)
    sizes = size_handles()
    if outside:
        off = Line2D([], [], color="#8A8A8A", marker="v", linestyle="none", markersize=6)
        off.set_label(f"off the axes: {outside} kernels")
        sizes.append(off)
    side_legend(figure, sizes, "area: share of the time", 0.69, labelspacing=1.1, handletextpad=1.2)
    side_legend(figure, levels, "intensity at other levels", 0.505)
    marks = [Line2D([], [], marker="*" if n == "prefill" else "P", markersize=12, label=n, **ring) for n, _, _ in stars]
    side_legend(figure, marks, "model's own estimate, ideal", 0.40)
