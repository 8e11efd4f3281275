"""Measured kernels of several GPUs, each under its own roofs: hundreds of thousands of points as densities."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from kernelroof.roofline.figure import FAINT, INK, draw_roof, log_axes, new_figure, save_png
from kernelroof.roofline.silicon import Silicon
from kernelroof.roofline.units import quantity
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.lines import Line2D

_TINTS = {"gemm": "#0072B2", "context_attention": "#D55E00", "generation_attention": "#009E73"}
_WORDS = {
    "gemm": "matrix products",
    "context_attention": "attention, prefill",
    "generation_attention": "attention, decode",
}
_LETTERS_PER_INCH = 15
"""Of the note beneath, on the safe side."""


def silicon_roofline(
    found: Sequence[Silicon], dtype: str, path: str | os.PathLike[str], formats: Sequence[str] = ("png",)
) -> Path:
    """Draw the points of one dtype, one panel for each GPU on shared axes, into a PNG.

    Raises:
        OutputError: the file can't be written.
    """
    shown = [s for s in found if dtype in s.ceilings]
    width = max(7.5, 5.4 * len(shown))
    figure, _ = new_figure(width, 6.9)
    points = {s.gpu: s.points[(s.points["dtype"] == dtype) & (s.points["flops"] > 0)] for s in shown}
    lows = [float(np.log10(p["intensity"].min())) for p in points.values()]
    highs = [float(np.log10(p["intensity"].max())) for p in points.values()]
    floor = min(float(np.quantile(p["attained_flop_s"], 0.001)) for p in points.values())
    limits = (10 ** (min(lows) - 0.1), 10 ** (max(highs) + 0.2))
    top = max(s.ceilings[dtype].flop_s for s in shown) * 3
    left, gap = 1.15 / width, 0.32 / width
    each = (1 - left - 0.2 / width - gap * (len(shown) - 1)) / len(shown)
    for at, s in enumerate(shown):
        axes = figure.add_axes((left + at * (each + gap), 0.20, each, 0.63))
        rows = points[s.gpu]
        for op, tint in reversed(_TINTS.items()):  # products on top: they are fewer
            some = rows[rows["op"] == op]
            if some.empty:
                continue
            shades = LinearSegmentedColormap.from_list(op, [(*_rgb(tint), 0.25), (*_rgb(tint), 0.95)])
            axes.hexbin(
                some["intensity"],
                some["attained_flop_s"],
                gridsize=(90, 70),
                extent=(*np.log10(limits), np.log10(floor / 2), np.log10(top)),
                xscale="log",
                yscale="log",
                mincnt=1,
                norm=LogNorm(1, 400),
                cmap=shades,
                linewidths=0,
                zorder=2,
            )
        # hexbin sets scales and ticks of its own, so the axes are made after it.
        log_axes(axes, "arithmetic intensity (FLOP/B)", "attained rate" if at == 0 else "", "FLOP/s")
        axes.tick_params(axis="y", labelleft=at == 0)
        axes.set_xlim(limits)
        axes.set_ylim(floor / 2, top)
        c = s.ceilings[dtype]
        begin = max(limits[0], floor / 2 / c.byte_s)
        memory = f"DRAM {quantity(c.byte_s, 'B/s', 3)}"
        draw_roof(axes, memory, (begin, begin * c.byte_s), (c.ridge, c.flop_s))
        draw_roof(axes, f"{quantity(c.flop_s, 'FLOP/s', 3)} dense", (c.ridge, c.flop_s), (limits[1], c.flop_s))
        axes.set_xlim(limits)
        axes.set_ylim(floor / 2, top)
        axes.set_title(f"{s.gpu}\n{len(rows):,} measured kernels", fontsize=10, color=INK, loc="left")
    handles = [
        Line2D([], [], linestyle="none", marker="h", markersize=10, color=t, label=_WORDS[op])
        for op, t in _TINTS.items()
        if any((p["op"] == op).any() for p in points.values())
    ]
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(left - 0.005, 0.058), ncol=3, frameon=False, fontsize=9.5
    )
    name = dtype.replace("_", " ")
    figure.text(left, 0.94, f"Measured kernels on the roofline, {name}", fontsize=14, weight="bold", color=INK)
    note = (
        "darker: more kernels; FLOPs (causal) and least bytes from the shapes; roofs of the datasheets; above the DRAM "
        "line: operands in L2"
    )
    room = int((width - 1.35) * _LETTERS_PER_INCH)
    figure.text(left, 0.035, "\n".join(textwrap.wrap(note, room)), fontsize=8.8, color=FAINT, va="center")
    return save_png(figure, path, formats)


def _rgb(tint: str) -> tuple[float, float, float]:
    return int(tint[1:3], 16) / 255, int(tint[3:5], 16) / 255, int(tint[5:7], 16) / 255
