"""What all pictures share: colours, a figure without global state, roofs with their values, safe files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from kernelroof.models.errors import OutputError
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.labels import Box, Mark, covers
from kernelroof.roofline.units import quantity
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

DPI = 150
Point = tuple[float, float]
_REACH = 1e4
INK, FAINT = "#222222", "#777777"


class Roofs(NamedTuple):
    """Where roofs are drawn: boxes, in pixels, that labels must stay clear of."""

    texts: list[Box]
    lines: list[Box]


def new_figure(width_in: float, height_in: float) -> tuple[Figure, FigureCanvasAgg]:
    """A figure of its own with an Agg canvas: no window system, no state shared with other figures."""
    figure = Figure(figsize=(width_in, height_in), dpi=DPI, facecolor="white")
    return figure, FigureCanvasAgg(figure)


def save_png(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write under a temporary name and rename, so that no half-written picture has the final name.

    Raises:
        OutputError: the file can't be written.
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        figure.savefig(part, format="png", dpi=DPI)
        os.replace(part, target)
    except OSError as error:
        raise OutputError(
            f"picture {target} can't be written ({error.strerror or error})", "Free some space or choose another --out."
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return target


def log_axes(axes: Axes, x_label: str, y_label: str, y_unit: str) -> None:
    """Two logarithmic axes with a quiet grid; y ticks carry SI prefixes."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x_label, fontsize=10, color=INK)
    axes.set_ylabel(y_label, fontsize=10, color=INK)
    axes.grid(True, which="major", color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", labelsize=9, colors=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=10, numticks=16))
        axis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}" if 1e-4 < value < 1e6 else f"{value:.0e}")
    axes.yaxis.set_major_formatter(lambda value, _: quantity(value, y_unit, 1) if value >= 1 else f"{value:.0e}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def roofline_limits(points: Iterable[tuple[float, float]], ceilings: Ceilings) -> tuple[float, float, float, float]:
    """x and y limits that hold (intensity, FLOP/s) points, the ridge and enough of both roofs.

    They reach no further than four decades from the ridge and below the peak.
    """
    xs, ys = [ceilings.ridge / 40, ceilings.ridge * 25], [ceilings.flop_s / 100]
    top = ceilings.flop_s
    for x, y in points:
        xs.append(x)
        ys.append(y)
        top = max(top, min(y, ceilings.flop_s * _REACH))
    reach = ceilings.ridge * _REACH
    low = max(min(ys) / 2.5, ceilings.flop_s / _REACH)
    return max(min(xs) / 2, ceilings.ridge / _REACH), min(max(xs) * 2, reach), low, top * 4


def draw_roofs(axes: Axes, ceilings: Ceilings, marks: Sequence[Mark] = ()) -> Roofs:
    """Draw the memory, cache and compute roofs with their values and origin, and mark the ridge.

    The limits of the axes must be set. The texts go where they cover fewest of the `marks`.
    """
    x0, x1 = axes.get_xlim()
    y0, peak, ridge = axes.get_ylim()[0], ceilings.flop_s, ceilings.ridge
    axes.plot([ridge, x1], [peak, peak], color=INK, linewidth=1.8, zorder=2)
    lines = _pieces(axes, (ridge, peak), (x1, peak), 4)
    words = f"compute {quantity(peak, 'FLOP/s', 3)} {ceilings.dtype} ({ceilings.origin})"
    texts = _on_line(axes, words, (ridge, peak), (x1, peak), marks)
    roofs = [("DRAM", ceilings.byte_s, 1.8, "-")]
    if ceilings.cache_byte_s is not None:
        roofs.append(("cache", ceilings.cache_byte_s, 1.2, "--"))
    for name, rate, width, style in roofs:
        begin, end = max(x0, y0 / rate), min(peak / rate, x1)
        if end <= begin:
            continue
        line = (begin, begin * rate), (end, end * rate)
        axes.plot(*zip(*line, strict=True), color=INK, linewidth=width, linestyle=style, zorder=2)
        lines += _pieces(axes, *line, 4)
        texts += _on_line(axes, f"{name} {quantity(rate, 'B/s', 3)} ({ceilings.origin})", *line, marks)
    axes.plot([ridge, ridge], [y0, peak], color=FAINT, linewidth=0.9, linestyle=":", zorder=1)
    text = axes.text(
        ridge, y0, f" ridge {quantity(ridge, 'FLOP/B', 3)}", fontsize=8, color=FAINT, va="bottom", zorder=6
    )
    return Roofs([*texts, extent(axes, text)], lines)


def draw_roof(
    axes: Axes,
    words: str,
    begin: Point,
    end: Point,
    marks: Sequence[Mark] = (),
    *,
    width: float = 1.8,
    style: str = "-",
    words_from: Point | None = None,
) -> Roofs:
    """Draw one roof with its words along it, where they cover fewest of the `marks`. Limits must be set.

    `words_from`: where the words may begin, if not where the line does.
    """
    axes.plot(*zip(begin, end, strict=True), color=INK, linewidth=width, linestyle=style, zorder=2)
    return Roofs(_on_line(axes, words, words_from or begin, end, marks), _pieces(axes, begin, end, 4))


def _on_line(axes: Axes, words: str, begin: Point, end: Point, marks: Sequence[Mark]) -> list[Box]:
    """Write `words` just above a line given by two data points, where they cover fewest marks."""
    (ax, ay), (bx, by) = axes.transData.transform([begin, end])
    angle, length = math.atan2(by - ay, bx - ax), math.hypot(bx - ax, by - ay)
    text = axes.text(0, 0, words, transform=None, fontsize=8.5, color=INK, zorder=6, ha="center", va="center")
    flat = extent(axes, text)
    width, high = flat[2] - flat[0], flat[3] - flat[1]
    best: tuple[float, list[Box], Point] | None = None
    room = max(0.0, length - width)
    for step, lift in product(range(13), (high / 2 + 5, high * 1.5 + 8)):
        along = width / 2 + room * step / 12 if room else length / 2
        cx = ax + along * math.cos(angle) - lift * math.sin(angle)
        cy = ay + along * math.sin(angle) + lift * math.cos(angle)
        # The upright box of a slanted text is mostly empty: cover it by a row of small boxes instead.
        dx, dy = width / 2 * math.cos(angle), width / 2 * math.sin(angle)
        boxes = _row(cx - dx, cy - dy, cx + dx, cy + dy, high)
        cost = sum(covers(box, mark) for box in boxes for mark in marks) + abs(step - 6) / 100 + lift / 1000
        if best is None or cost < best[0]:
            best = cost, boxes, (cx, cy)
    assert best is not None
    text.set_position(best[2])
    text.set_rotation(math.degrees(angle))
    return best[1]


def _pieces(axes: Axes, begin: Point, end: Point, high: float) -> list[Box]:
    (ax, ay), (bx, by) = axes.transData.transform([begin, end])
    return _row(float(ax), float(ay), float(bx), float(by), high)


def _row(ax: float, ay: float, bx: float, by: float, high: float) -> list[Box]:
    """Square boxes of one size that cover a segment of that thickness, in pixels."""
    pieces = max(2, math.ceil(math.hypot(bx - ax, by - ay) / high))
    half = high / 2
    centres = [(ax + (bx - ax) * i / (pieces - 1), ay + (by - ay) * i / (pieces - 1)) for i in range(pieces)]
    return [(x - half, y - half, x + half, y + half) for x, y in centres]


def extent(axes: Axes, artist: Any) -> Box:
    """The box of an artist in pixels."""
    canvas = axes.figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    found = artist.get_window_extent(canvas.get_renderer())
    return float(found.x0), float(found.y0), float(found.x1), float(found.y1)
