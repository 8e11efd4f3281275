"""What all pictures share: colours, a figure without global state, roofs with their values, safe files."""

from __future__ import annotations

import math
import os
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from kernelroof.models.errors import OutputError
from kernelroof.parsers.kernel_names import cut
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.labels import Box, Mark
from kernelroof.roofline.units import quantity
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import TICKDOWN, TICKLEFT
from matplotlib.ticker import LogLocator, NullLocator
from matplotlib.transforms import Transform

DPI = 150
Point = tuple[float, float]
_REACH = 1e4
INK, FAINT = "#222222", "#666666"
FORMATS = ("png", "svg", "pdf")
_MOST_DECADES = 14
_SUBTITLE_LINES = 2
_STEADY = {"svg.hashsalt": "kernelroof", "svg.fonttype": "path", "pdf.fonttype": 42}
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


# Texts hold names of models, modules and kernels: a $ in one of them begins no formula.
rcParams["text.parse_math"] = False
warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)


class Roofs(NamedTuple):
    """Where roofs are drawn: boxes, in pixels, that labels must stay clear of."""

    texts: list[Box]
    lines: list[Box]


def new_figure(width_in: float, height_in: float) -> tuple[Figure, FigureCanvasAgg]:
    """A figure of its own with an Agg canvas: no window system, no state shared with other figures."""
    figure = Figure(figsize=(width_in, height_in), dpi=DPI, facecolor="white")
    return figure, FigureCanvasAgg(figure)


def save_png(figure: Figure, path: str | os.PathLike[str], formats: Sequence[str] = ("png",)) -> Path:
    """Write the picture in each format beside `path` (which ends in .png); returns the first file.

    Each is written under a temporary name and renamed, so that no half-written picture has the final name.
    The same figure gives the same bytes. SVG has its text as outlines, to look alike everywhere; PDF embeds its
    fonts as TrueType, so that its text can be searched.

    Raises:
        OutputError: a file can't be written.
    """
    for axes in figure.axes:
        _minor_ticks(axes)
    written = [_save(figure, with_format(path, name), name) for name in formats]
    return written[0]


def with_format(path: str | os.PathLike[str], name: str) -> Path:
    """The path of a picture in another format: x.png -> x.svg."""
    target = Path(path)
    return target.with_name(f"{target.name.removesuffix('.png')}.{name}")


def _save(figure: Figure, target: Path, name: str) -> Path:
    if target.exists() and not target.is_file():  # a device would be replaced, not written to
        raise OutputError(f"picture {target} can't be written (it is no ordinary file)", "Choose another --out.")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    more: dict[str, Any] = {"pil_kwargs": {"compress_level": 3}} if name == "png" else {}
    try:
        with rc_context(_STEADY):
            figure.savefig(part, format=name, dpi=DPI, metadata=_METADATA[name], **more)
        os.replace(part, target)
    except OSError as error:
        raise OutputError(
            f"picture {target} can't be written ({error.strerror or error})", "Free some space or choose another --out."
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return target


def _minor_ticks(axes: Axes) -> None:
    """Short marks at 2 to 9 times each power of ten, as one line for each logarithmic axis.

    Matplotlib's own minor ticks are five artists each, hundreds in all, and took half of the drawing time.
    """
    for log, limits, marker, transform in (
        (axes.get_xscale() == "log", axes.get_xlim(), TICKDOWN, axes.get_xaxis_transform()),
        (axes.get_yscale() == "log", axes.get_ylim(), TICKLEFT, axes.get_yaxis_transform()),
    ):
        first, last = math.floor(math.log10(limits[0])) if log else 0, math.ceil(math.log10(limits[1])) if log else 0
        at = [m * 10.0**e for e in range(first, last) for m in range(2, 10) if limits[0] <= m * 10.0**e <= limits[1]]
        if not at or last - first > _MOST_DECADES:
            continue
        zeros = [0.0] * len(at)
        along = (at, zeros) if marker == TICKDOWN else (zeros, at)
        style: dict[str, Any] = {"linestyle": "none", "marker": marker, "markersize": 2.2, "markeredgewidth": 0.6}
        line = Line2D(*along, color=INK, transform=transform, clip_on=False, **style)
        axes.add_artist(line)
        line.set_clip_path(None)


def write_title(figure: Figure, x: float, y: float, words: str, fontsize: float = 14.0) -> None:
    """A title on one line; of one too long for the figure the middle is left out."""
    room = int((1 - x - 0.02) * figure.get_figwidth() * 72 / (fontsize * 0.68))
    figure.text(x, y, cut(words, room), fontsize=fontsize, weight="bold", color=INK, parse_math=False)


def write_subtitle(figure: Figure, x: float, y: float, words: str, fontsize: float = 9.0) -> None:
    """What was run, beneath the title: growing downwards to at most two lines as wide as the figure."""
    room = int((1 - x - 0.02) * figure.get_figwidth() * 72 / (fontsize * 0.56))
    parts = words.splitlines()
    lines: list[str] = []
    for part in parts:
        # A further part (what makes the figures doubtful) has its line, however long what was run is.
        found, most = textwrap.wrap(part, room), max(1, _SUBTITLE_LINES - len(parts) + 1) if part is parts[0] else 1
        if len(found) > most:
            found = [*found[: most - 1], f"{found[most - 1][: room - 1].rstrip(' ,;')}…"]
        lines += found
    figure.text(x, y, "\n".join(lines), fontsize=fontsize, color=FAINT, va="bottom", linespacing=1.25, parse_math=False)


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
        axis.set_minor_locator(NullLocator())  # `save_png` draws the minor ticks
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
    text = axes.text(0, 0, words, transform=inches(axes), fontsize=8.5, color=INK, zorder=6, ha="center", va="center")
    flat = extent(axes, text)
    width, high = flat[2] - flat[0], flat[3] - flat[1]
    best: tuple[float, list[Box], Point] | None = None
    spots = np.array([tuple(mark) for mark in marks], dtype=float).reshape(-1, 3)
    room = max(0.0, length - width)
    for step, lift in product(range(13), (high / 2 + 5, high * 1.5 + 8)):
        along = width / 2 + room * step / 12 if room else length / 2
        cx = ax + along * math.cos(angle) - lift * math.sin(angle)
        cy = ay + along * math.sin(angle) + lift * math.cos(angle)
        # The upright box of a slanted text is mostly empty: cover it by a row of small boxes instead.
        dx, dy = width / 2 * math.cos(angle), width / 2 * math.sin(angle)
        boxes = _row(cx - dx, cy - dy, cx + dx, cy + dy, high)
        cost = _covered(boxes, spots) + abs(step - 6) / 100 + lift / 1000
        if best is None or cost < best[0]:
            best = cost, boxes, (cx, cy)
    assert best is not None
    text.set_position((best[2][0] / DPI, best[2][1] / DPI))
    text.set_rotation(math.degrees(angle))
    return best[1]


def inches(axes: Axes) -> Transform:
    """Where pixels divided by DPI are positions: they stay right in formats with another resolution."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    return figure.dpi_scale_trans


def _covered(boxes: Sequence[Box], spots: np.ndarray) -> int:
    """How many pairs of a box and a mark (x, y, radius) overlap, as `labels.covers` has it."""
    x0, y0, x1, y1 = (side[:, None] for side in np.array(boxes).T)
    x, y, radius = spots.T
    return int(np.count_nonzero(np.hypot(x - np.clip(x, x0, x1), y - np.clip(y, y0, y1)) < radius))


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
