"""Heat maps of a sweep: one panel per combination of the other axes, one colour scale for all."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from kernelroof.models.errors import UsageError
from kernelroof.roofline.figure import FAINT, INK, new_figure, save_png
from kernelroof.roofline.units import fixed
from matplotlib.colors import LogNorm, Normalize

MOST_PANELS = 12
_MOST_NUMBERS = 200
"""Cells are labelled up to so many in a panel."""
_BAR_INCHES = 1.6
_TITLE_LETTERS_PER_INCH = 11
"""Of the title's font, whose letters are of different widths: few enough for the wide ones."""
_COLUMN_WORDS = {
    "tokens_per_s": "tokens/s, ideal",
    "tpot_ms": "ms per decode step, ideal",
    "ttft_ms": "ms of prefill, ideal",
    "total_bytes": "memory, bytes",
    "decode_flop_per_byte": "decode intensity, FLOP/B",
    "prefill_flop_per_byte": "prefill intensity, FLOP/B",
}


def plot_heat(
    table: pd.DataFrame, column: str, axes: Sequence[str], others: Sequence[str], path: str, footer: str
) -> Path:
    """Draw `column` over two axes; cells that do not fit the GPU's memory are hatched.

    Args:
        table: of `kernelroof sweep`.
        axes: two of its axis columns: across and up.
        path: its ending tells the format: .png, .svg or .pdf.
        others: the remaining axis columns; each combination that occurs becomes a panel.

    Raises:
        UsageError: axes that are none, a column without numbers, or more than `MOST_PANELS` panels.
        OutputError: the file can't be written.
    """
    if len(axes) != 2 or any(a not in table.columns for a in axes) or axes[0] == axes[1]:
        raise UsageError(f"--axes {','.join(axes)}: not two columns of the sweep", "Name two, such as batch,prompt.")
    if not pd.api.types.is_numeric_dtype(table[column]) or pd.api.types.is_bool_dtype(table[column]):
        raise UsageError(f"--heat {column}: not a number", "Name a column such as tokens_per_s.")
    if table.empty or not np.isfinite(table[column].astype(float)).any():
        raise UsageError(f"--heat {column}: no row has a number", "See the column reason.")
    varying = [a for a in others if table[a].nunique() > 1]
    panels = list(table.groupby(varying, observed=True, sort=False)) if varying else [((), table)]
    if len(panels) > MOST_PANELS:
        raise UsageError(
            f"{len(panels)} panels, one per combination of {', '.join(varying)}, can't be read",
            f"Give shorter lists ({MOST_PANELS} combinations at most), or other --axes.",
        )
    columns = min(len(panels), 3)
    lines = -(-len(panels) // columns)
    xs, ys = (_values(table[a]) for a in axes)
    width, height = max(0.62 * len(xs), 3.0) + 1.2, max(0.36 * len(ys), 1.6) + 1.1
    fixed_axes = [f"{_named(a, table[a].iloc[0])}" for a in others if a not in varying]
    whole = columns * width + _BAR_INCHES
    title = textwrap.wrap(
        f"{_COLUMN_WORDS.get(column, column)}: {', '.join(fixed_axes)}", int(whole * _TITLE_LETTERS_PER_INCH)
    )
    figure, _canvas = new_figure(whole, lines * height + 1.3 + 0.2 * len(title))
    grid = figure.subplots(lines, columns, squeeze=False)
    norm = _norm(table[column].astype(float).to_numpy())
    image: Any = None
    for panel, (names, rows) in zip(grid.flat, panels, strict=False):
        words = names if isinstance(names, tuple) else (names,)
        image = _draw(panel, rows, column, axes, xs, ys, norm)
        panel.set_title(", ".join(_named(a, w) for a, w in zip(varying, words, strict=False)), fontsize=9, color=INK)
    for panel in list(grid.flat)[len(panels) :]:
        panel.set_axis_off()
    figure.suptitle("\n".join(title), fontsize=11, color=INK)
    figure.text(0.01, 0.012, footer, fontsize=6.5, color=FAINT, wrap=True)
    # The bar and its numbers take inches, not shares: a narrow picture would cut them off.
    figure.tight_layout(rect=(0, 0.07, 1 - 1.25 / whole, 0.98))
    bar = figure.add_axes((1 - 1.1 / whole, 0.2, 0.18 / whole, 0.6))
    figure.colorbar(image, cax=bar)
    bar.tick_params(labelsize=8, colors=INK)
    return save_png(figure, Path(path).with_suffix(".png"), (Path(path).suffix.removeprefix("."),))


def _named(axis: str, value: Any) -> str:
    return str(value) if axis in ("model", "gpu") else f"{axis.replace('_', ' ')} {value}"


def _values(column: pd.Series) -> list[Any]:
    found = list(column.unique())
    return sorted(found) if pd.api.types.is_numeric_dtype(column) else found


def _norm(values: Any) -> Normalize:
    seen = values[np.isfinite(values)]
    low, high = float(seen.min()), float(seen.max())
    if low > 0 and high / low > 20:
        return LogNorm(low, high)
    return Normalize(low, high if high > low else low + 1)


def _draw(
    panel: Any, rows: pd.DataFrame, column: str, axes: Sequence[str], xs: list[Any], ys: list[Any], norm: Normalize
) -> Any:
    cells = np.full((len(ys), len(xs)), np.nan)
    fits = np.ones(cells.shape, dtype=bool)
    x_at, y_at = ({v: i for i, v in enumerate(values)} for values in (xs, ys))
    for x, y, value, ok in zip(rows[axes[0]], rows[axes[1]], rows[column], rows["fits"], strict=True):
        cells[y_at[y], x_at[x]] = value
        fits[y_at[y], x_at[x]] = ok
    image = panel.imshow(cells, origin="lower", aspect="auto", cmap="cividis", norm=norm)
    if cells.size <= _MOST_NUMBERS:
        _label(panel, cells, norm)
    for y, x in zip(*np.nonzero(~fits), strict=True):
        cell = mpl.patches.Rectangle(
            (x - 0.5, y - 0.5), 1, 1, fill=False, hatch="////", edgecolor="#FFFFFF", linewidth=0, alpha=0.7
        )
        panel.add_patch(cell)
    if not fits.all():
        where = {"xycoords": "axes fraction", "ha": "right", "va": "bottom"}
        panel.annotate("hatched: does not fit", (1, 1.01), fontsize=6.5, color=FAINT, **where)
    for values, set_ticks, set_label, axis in (
        (xs, panel.set_xticks, panel.set_xlabel, axes[0]),
        (ys, panel.set_yticks, panel.set_ylabel, axes[1]),
    ):
        step = -(-len(values) // 16)
        words = [f"{v:,}" if isinstance(v, (int, np.integer)) else v for v in values[::step]]
        set_ticks(range(0, len(values), step), words)
        set_label(axis.replace("_", " "), fontsize=9, color=INK)
    panel.tick_params(labelsize=7.5, colors=INK)
    panel.tick_params(axis="x", rotation=45 if len(xs) > 6 else 0)
    return image


def _label(panel: Any, cells: Any, norm: Normalize) -> None:
    for (y, x), value in np.ndenumerate(cells):
        known = bool(np.isfinite(value))
        ink = FAINT if not known else "#FFFFFF" if norm(value) < 0.55 else "#000000"
        panel.text(x, y, _short(value) if known else "–", ha="center", va="center", fontsize=6.5, color=ink)


def _short(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 10 or (value >= size and size > 1e3):
            return f"{fixed(value / size, 3)}{unit}"
    return fixed(value, 3)
