"""The card of a recording without counters: which kernels took the time, phase by phase."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from kernelroof.parsers.kernel_names import cut
from kernelroof.roofline.figure import FAINT, INK, extent, new_figure, save_png, write_subtitle
from kernelroof.roofline.units import counted, fixed, seconds
from matplotlib.axes import Axes
from matplotlib.text import Text

_BARS = 16
_TINTS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8A8A8A")


def time_card(
    kernels: pd.DataFrame,
    path: str | os.PathLike[str],
    *,
    title: str,
    subtitle: str,
    why: str,
    formats: Sequence[str] = ("png",),
) -> Path:
    """Draw the kernels with most time (`kernel_groups.kernels_of`) as bars into a PNG.

    Args:
        why: why there is no roofline, printed beneath.

    Raises:
        OutputError: the file can't be written.
    """
    shown = kernels.head(_BARS)
    phases = list(dict.fromkeys(kernels["phase"].astype(str)))
    tint = {p: _TINTS[min(i, len(_TINTS) - 1)] for i, p in enumerate(phases)}
    figure, _ = new_figure(13, 8.6)
    axes = figure.add_axes((0.36, 0.10, 0.58, 0.78))
    at = range(len(shown))
    axes.barh(at, shown["share_pct"], color=[tint[str(p)] for p in shown["phase"]], height=0.72)
    axes.set_yticks(list(at))
    axes.set_yticklabels([cut(str(label), 46) for label in shown["label"]], fontsize=9, color=INK)
    axes.set_ylim(max(_BARS, len(shown)) - 0.4, -0.6)
    top = float(shown["share_pct"].max()) if len(shown) else 1.0
    limit = top * 1.6
    for i, row in zip(at, shown.to_dict("records"), strict=True):
        n = int(row["launches"])
        each = f", {seconds(row['time_ns'] / n / 1e9, 3)} each" if n > 1 else ""
        each += "" if pd.isna(row["op"]) else f"  ‹ {cut(str(row['op']).removeprefix('aten::'), 32)}"
        of = f"{counted(n, 'launch')}{each}"
        words = f" {fixed(row['share_pct'], 2)} %  {seconds(row['time_ns'] / 1e9, 3)} in {of}"
        text = axes.text(row["share_pct"], i, words, fontsize=8.5, color=INK, va="center")
        limit = max(limit, _limit_for(axes, text, float(row["share_pct"])))
    axes.set_xlim(0, limit)
    axes.set_xticks([t for t in axes.get_xticks() if t <= 100])
    axes.set_xlabel("share of kernel time (%)", fontsize=10, color=INK)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=9, colors=INK)
    axes.grid(True, axis="x", color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    rest = kernels.iloc[_BARS:]
    if len(rest):
        left = f"and {len(rest)} more kernels, {fixed(float(rest['share_pct'].sum()), 2)} % of the time"
        figure.text(0.36, 0.035, left, fontsize=9, color=FAINT)
    if len(phases) > 1:
        for i, phase in enumerate(phases):
            figure.text(0.94, 0.90 - 0.024 * i, f"■ {phase}", fontsize=9, color=tint[phase], ha="right")
    figure.text(0.03, 0.965, title, fontsize=15, weight="bold", color=INK)
    write_subtitle(figure, 0.03, 0.91, subtitle)
    figure.text(0.03, 0.012, why, fontsize=9, color=FAINT)
    return save_png(figure, path, formats)


def _limit_for(axes: Axes, text: Text, share_pct: float) -> float:
    """The end of the axis at which the words behind a bar still end within the axes."""
    left, _, right, _ = extent(axes, axes.patch)
    begin, _, end, _ = extent(axes, text)
    return share_pct * (right - left) / max(1.0, right - left - (end - begin))
