"""One picture per kernel role: every launch, the roof, and where the model says it should be.

A kernel without FLOPs has no place on a roofline; its picture shows bytes against bandwidth instead, and
one without any known work shows its durations.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.figure import (
    FAINT,
    INK,
    draw_roofs,
    log_axes,
    new_figure,
    roofline_limits,
    save_png,
    write_subtitle,
    write_title,
)
from kernelroof.roofline.labels import Mark
from kernelroof.roofline.palette import kind_colour, kind_edge
from kernelroof.roofline.place import aggregate
from kernelroof.roofline.plot import on_axes
from kernelroof.roofline.units import counted, fixed, quantity, seconds
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

Work = tuple[float, float]
"""FLOPs and bytes"""
Limits = tuple[float, float, float, float]


class KernelPicture(NamedTuple):
    """What a kernel picture shows: "roofline", "bandwidth" or "duration", and how many launches."""

    path: Path
    shows: str
    points: int
    without_point: int


def kernel_roofline(
    launches: pd.DataFrame,
    ceilings: Ceilings,
    estimate: Mapping[str, Work | None] | None,
    path: str | os.PathLike[str],
    *,
    title: str = "",
    subtitle: str = "",
    limits: Limits | None = None,
    steps: int = 1,
    formats: Sequence[str] = ("png",),
) -> KernelPicture:
    """Draw the launches of one kernel role into a PNG.

    Args:
        launches: placed rows of one role (at least one).
        estimate: FLOPs and bytes of one launch as the model says ("own") and of the phase ("phase").
        limits: axes (x0, x1, y0, y1) of a roofline, such as `kernel_limits`; fitted to these launches if None.
        steps: forwards that the launches are of; sums are told per step.
        formats: of "png", "svg", "pdf"; files beside `path`, which ends in .png.

    Raises:
        OutputError: the file can't be written.
    """
    points = dict(estimate or {})
    own, phase = points.get("own"), points.get("phase")
    flops, moved = _column(launches["flops"]), _bytes(launches)
    timed = _column(launches["time_ns"]) > 0
    on_roof, on_bandwidth = (flops > 0) & (moved > 0) & timed, (moved > 0) & timed
    figure, _ = new_figure(11, 6.9)
    axes = figure.add_axes((0.115, 0.24, 0.66, 0.62))
    kind = str(launches["kind"].iloc[0]) if "kind" in launches and len(launches) else "other"
    marks: list[Line2D] = []
    if on_roof.any():
        shows, shown = "roofline", launches[on_roof.to_numpy()]
        xy = list(zip(shown["intensity"].astype(float), shown["attained_flop_s"].astype(float), strict=True))
        hollow = [(name, w) for name, w in (("own", own), ("phase", phase)) if w and w[0] > 0 and w[1] > 0]
        ideal = [(name, f / b, ceilings.roof_flop_s(f / b)) for name, (f, b) in hollow]
        log_axes(axes, "arithmetic intensity (FLOP per byte of memory traffic)", "attained rate", "FLOP/s")
        limits = limits or roofline_limits([*xy, *((x, y) for _, x, y in ideal)], ceilings)
        seen = [on_axes(p, limits) for p in xy]
        out = sum(a != b for a, b in zip(seen, xy, strict=True))
        axes.set_xlim(limits[:2])
        axes.set_ylim(limits[2:])
        pixels = axes.transData.transform([*seen, *((x, y) for _, x, y in ideal)])
        draw_roofs(axes, ceilings, [Mark(float(x), float(y), 10.0) for x, y in pixels[-40:]])
        marks = _draw(axes, seen, ideal, kind)
        if out:
            marks.append(_handle("o", FAINT, f"{out} of them off the axes,\ndrawn on their edge", filled=True))
    elif on_bandwidth.any():
        shows, shown = "bandwidth", launches[on_bandwidth.to_numpy()]
        sizes = moved[on_bandwidth]
        xy = list(zip(sizes, shown["attained_byte_s"].astype(float), strict=True))
        ideal = [("own", own[1], ceilings.byte_s)] if own and own[1] > 0 else []
        _bandwidth_axes(axes, [*xy, *((x, y) for _, x, y in ideal)], ceilings)
        marks = _draw(axes, xy, ideal, kind)
    else:
        shows, shown = "duration", launches
        marks = _durations(axes, _column(launches["time_ns"]), kind_colour(kind))
    figure.legend(
        handles=marks,
        loc="upper left",
        bbox_to_anchor=(0.785, 0.87),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        labelspacing=0.9,
    )
    write_title(figure, 0.115, 0.935, title or "kernel")
    write_subtitle(figure, 0.115, 0.88, subtitle or ceilings.note, 8.5)
    _facts(figure, launches, own, steps)
    return KernelPicture(save_png(figure, path, formats), shows, len(shown), len(launches) - len(shown))


def kernel_limits(drawn: Iterable[tuple[pd.DataFrame, Mapping[str, Work | None]]], ceilings: Ceilings) -> Limits:
    """Axes of a roofline that hold all of these launches and estimates, for pictures to be laid side by side."""
    points: list[tuple[float, float]] = []
    for launches, estimate in drawn:
        on = (_column(launches["flops"]) > 0) & (_bytes(launches) > 0) & (_column(launches["time_ns"]) > 0)
        shown = launches[on.to_numpy()]
        points += zip(shown["intensity"].astype(float), shown["attained_flop_s"].astype(float), strict=True)
        works = [w for w in estimate.values() if w and w[0] > 0 and w[1] > 0]
        points += [(f / b, ceilings.roof_flop_s(f / b)) for f, b in works]
    return roofline_limits(points, ceilings)


def _draw(axes: Axes, xy: list[tuple[float, float]], ideal: list[tuple[str, float, float]], kind: str) -> list[Line2D]:
    """Launches as dots (fainter where there are many), estimates as hollow markers; returns the legend."""
    many, tint, edge_tint = len(xy), kind_colour(kind), kind_edge(kind)
    axes.scatter(
        [x for x, _ in xy],
        [y for _, y in xy],
        s=34 if many < 100 else 20,
        color=tint,
        alpha=0.85 if many < 20 else 0.45 if many < 400 else 0.2,
        edgecolor="white",
        linewidth=0.4,
        zorder=4,
        clip_on=False,
    )
    handles = [_handle("o", tint, f"one launch ({many})", filled=True)]
    for name, x, y in ideal:
        shape, size, edge = ("D", 100, edge_tint) if name == "own" else ("*", 260, INK)
        axes.scatter([x], [y], s=size, marker=shape, facecolor="none", edgecolor="white", linewidth=3.6, zorder=5)
        axes.scatter([x], [y], s=size, marker=shape, facecolor="none", edgecolor=edge, linewidth=1.8, zorder=6)
        words = "estimate of this kernel" if name == "own" else "estimate of the phase"
        handles.append(_handle(shape, edge, words, filled=False))
    return handles


def _durations(axes: Axes, times_ns: pd.Series[float], tint: str) -> list[Line2D]:
    """How long each launch took, in the order they came; returns the legend."""
    longest = float(times_ns.max())
    size, unit = next(((s, u) for s, u in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")) if longest >= s), (1.0, "ns"))
    axes.scatter(range(len(times_ns)), times_ns / size, s=22, color=tint, alpha=0.7)
    axes.set_xlabel("launch", fontsize=10, color=INK)
    axes.set_ylabel(f"duration ({unit})", fontsize=10, color=INK)
    axes.set_ylim(0, 1.1 * max(longest, 1.0) / size)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_axisbelow(True)
    axes.grid(True, color="#E4E4E4", linewidth=0.7)
    axes.tick_params(which="both", labelsize=9, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return [_handle("o", tint, f"one launch ({len(times_ns)})", filled=True)]


def _handle(shape: str, tint: str, words: str, *, filled: bool) -> Line2D:
    return Line2D(
        [],
        [],
        linestyle="none",
        marker=shape,
        color=tint,
        markerfacecolor=tint if filled else "none",
        markersize=13 if shape == "*" else 7,
        markeredgewidth=0.5 if filled else 1.6,
        label=words,
    )


def _bandwidth_axes(axes: Axes, xy: list[tuple[float, float]], ceilings: Ceilings) -> None:
    """Bytes of a launch against bytes/s, with the bandwidths as level roofs."""
    log_axes(axes, "bytes moved by a launch (it has no FLOPs)", "attained rate", "B/s")
    axes.xaxis.set_major_formatter(lambda value, _: quantity(value, "B", 1) if value >= 1 else f"{value:.0e}")
    roofs = [("DRAM", ceilings.byte_s, "-")]
    if ceilings.cache_byte_s is not None:
        roofs.append(("cache", ceilings.cache_byte_s, "--"))
    xs, ys = [x for x, _ in xy], [y for _, y in xy]
    axes.set_xlim(min(xs) / 30, max(xs) * 30)
    axes.set_ylim(min([*ys, ceilings.byte_s / 30]) / 2, max([*ys, *(rate for _, rate, _ in roofs)]) * 3)
    for name, rate, style in roofs:
        axes.axhline(rate, color=INK, linewidth=1.6, linestyle=style, zorder=2)
        axes.text(
            axes.get_xlim()[0] * 1.1,
            rate * 1.06,
            f"{name} {quantity(rate, 'B/s', 3)} ({ceilings.origin})",
            fontsize=8.5,
            color=INK,
            va="bottom",
        )


def _facts(figure: Figure, launches: pd.DataFrame, own: Work | None, steps: int) -> None:
    """The figures beneath: times, work, share of the roof, and the estimate beside them."""
    each = "per step" if steps > 1 else "in all"
    times = _column(launches["time_ns"])
    total = aggregate(launches.assign(all="all"), "all").iloc[0]
    spread = [seconds(float(v) / 1e9, 3) for v in (times.min(), times.median(), times.max())]
    number, took = int(total["launches"]), float(total["time_ns"]) / 1e9
    whole = f" ({counted(number, 'launch')}, {seconds(took, 3)} in {steps} steps)" if steps > 1 else ""
    launched = counted(number, "launch") if steps == 1 else f"{number / steps:.4g} launches"
    lines = [
        f"{launched}, {seconds(took / steps, 3)} {each}{whole}; "
        f"shortest {spread[0]}, median {spread[1]}, longest {spread[2]}"
    ]
    n = max(1, int(total["launches"]) - int(total["unplaced"]))
    if pd.notna(total["flops"]):
        measured = f"{quantity(total['flops'] / n, 'FLOP', 3)}, {quantity(total['bytes'] / n, 'B', 3)}"
        lines.append(f"a launch: {measured}; estimate {_work(own)}")
        at_roof = seconds(float(total["ideal_ns"]) / n / 1e9, 3)
        gain = total["recoverable_ns"]
        recoverable = f"{seconds(float(gain) / steps / 1e9, 3)} {each}" if pd.notna(gain) else "not known"
        share = f"{fixed(total['pct_of_roof'], 3)} %" if pd.notna(total["pct_of_roof"]) else "not known"
        lines.append(f"a launch at its roof: {at_roof}; share of the roof {share}; recoverable {recoverable}")
    else:
        lines.append(f"FLOPs or bytes not known; estimate {_work(own)}")
    reason = f" ({total['reason']})" if pd.notna(total["reason"]) else ""
    verdict = f"bound: {total['bound']}{reason}"
    lines.append(verdict if len(verdict) <= 150 else f"{verdict[:149]}…")
    figure.text(0.115, 0.135, "\n".join(lines), fontsize=8.8, color=INK, va="top", linespacing=1.5)


def _work(own: Work | None) -> str:
    return f"{quantity(own[0], 'FLOP', 3)}, {quantity(own[1], 'B', 3)}" if own else "not known"


def _column(values: pd.Series[Any]) -> pd.Series[float]:
    numbers: pd.Series[float] = values.astype("Float64").astype("float64")
    return numbers


def _bytes(launches: pd.DataFrame) -> pd.Series[float]:
    return _column(launches["dram_read_bytes"]) + _column(launches["dram_write_bytes"])
