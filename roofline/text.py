"""The measured story for a terminal: a verdict, a few facts and two tables per phase.

rich is imported when something is rendered, not before. Columns that do not fit the width are left
out, least important first; the tables in the run folder have them all.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.large_rows import leading
from kernelroof.roofline.place import TOLERANCE_PCT
from kernelroof.roofline.summary import MBU_MEANS, MFU_MEANS, PhaseSummary
from kernelroof.roofline.table_notes import table_notes
from kernelroof.roofline.units import fixed, quantity, seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_STYLES = {
    "compute": "green",
    "memory": "cyan",
    "latency": "yellow",
    "inefficient": "red",
    "unknown": "magenta",
}
_BOUND_WORDS = {
    "compute": "bound by compute",
    "memory": "bound by memory",
    "latency": "bound by latency",
    "inefficient": "mostly inefficient kernels",
    "unknown": "mostly kernels without a verdict",
}
_LEAST_NAME = 26
_BETWEEN = 2
"""Spaces between columns."""
_DASH = "–"
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


class _Column(NamedTuple):
    """A rendered column; of those that don't fit, the one of least `rank` goes first."""

    key: str
    head: str
    cells: list[str]
    rank: int


def new_console(file: IO[str] | None = None, width: int | None = None) -> Console:
    """A console as wide as the terminal, or as COLUMNS says, or 100 columns; plain if it is no terminal."""
    from rich.console import Console

    console = Console(file=file, width=width, highlight=False, soft_wrap=False)
    if width is None and not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(file=file, width=100, highlight=False)
    return console


def print_phase(
    console: Console,
    summary: PhaseSummary,
    modules: pd.DataFrame,
    kernels: pd.DataFrame,
    *,
    top: int = 12,
    doubts: Sequence[str] = (),
) -> None:
    """Print one phase: verdict, doubts, facts, modules and kernels, most recoverable first.

    Where a phase has several steps, all amounts are per step.
    """
    console.print()
    wrapped(console, verdict(summary), "bold")
    for line in doubts:
        wrapped(console, f"! {line}", "yellow", "  ")
    for line in facts(summary):
        wrapped(console, line, "", "  ")
    for rows, key, head in ((modules, "role", "module"), (kernels, "label", "kernel")):
        console.print()
        _without_blanks(console, table(rows, key, head, summary, console.width, top))
        shown = rows.iloc[_shown(rows, summary, top)]
        names = ("time_ns", "ideal_ns", "recoverable_ns", "pct_of_roof")
        for line in table_notes([{n: _real(row[n]) for n in names} for row in shown.to_dict("records")]):
            wrapped(console, line, "dim")


def verdict(summary: PhaseSummary) -> str:
    """One line on a phase: time, share in kernels, bound, utilisation, and what to look at first."""
    parts = [
        f"{summary.phase}: {_time(summary.wall_ns, summary)}, "
        f"{_percent(100 * (summary.kernel_ns - summary.overlap_ns) / summary.wall_ns if summary.wall_ns else None)} "
        "in kernels"
    ]
    parts.append(_BOUND_WORDS.get(summary.bound, summary.bound))
    # The utilisation that limits this phase, whatever bounds its single kernels.
    compute_side = (summary.mfu_pct or 0) >= (summary.mbu_pct or 0)
    name, value = ("MFU", summary.mfu_pct) if compute_side else ("MBU", summary.mbu_pct)
    if value is not None:
        parts.append(f"{name} {_percent(value)}")
    if summary.top_role is not None:
        parts.append(f"most recoverable: {summary.top_role} {_time(summary.top_recoverable_ns, summary)}")
    return "; ".join(parts)


def facts(summary: PhaseSummary) -> list[str]:
    """Lines on a phase: where the wall time goes, estimate beside measurement, what has no numbers."""
    gaps = summary.wall_ns - summary.kernel_ns + summary.overlap_ns
    overlap = f"- overlap {_time(summary.overlap_ns, summary)} " if summary.overlap_ns else ""
    lines = [
        f"wall {_time(summary.wall_ns, summary)} = kernels {_time(summary.kernel_ns, summary)} {overlap}"
        f"+ gaps {_time(gaps, summary)}; recoverable in kernels {_time(summary.recoverable_ns, summary)}"
    ]
    if summary.model is not None:
        flops, moved = summary.model
        lines.append(
            f"model{_per(summary)}: {_each(flops, 'FLOP', summary)}, {_each(moved, 'B', summary)}, "
            f"ideal {_time(summary.model_ns, summary)}; "
            f"MFU {_percent(summary.mfu_pct)}, MBU {_percent(summary.mbu_pct)}"
        )
    if summary.estimated is not None:
        est = summary.estimated
        lines.append(
            f"traced ops{_per(summary)}: {_each(est.flops, 'FLOP', summary)}, {_each(est.bytes, 'B', summary)} "
            "(every op's own reads and writes)"
        )
    lines.append(
        f"kernels{_per(summary)}: {_each(summary.flops, 'FLOP', summary)}, {_each(summary.bytes, 'B', summary)}, "
        f"at their roofs {_time(summary.ideal_ns, summary)}; "
        f"{summary.bound} for {_percent(summary.bound_pct)} of their time"
    )
    if summary.unplaced:
        lines.append(
            f"{summary.unplaced} of {summary.launches} launches in all have no FLOPs or bytes: "
            f"{_time(summary.unplaced_ns, summary)}"
        )
    return lines


def conventions(ceilings: Ceilings) -> list[str]:
    """The notes that go with every figure printed here."""
    source = {"measured": "measured on this machine", "datasheet": "dense peak and bandwidth of the datasheet"}
    cache = f", cache {quantity(ceilings.cache_byte_s, 'B/s', 3)}" if ceilings.cache_byte_s else ""
    return [
        f"roofs: {quantity(ceilings.flop_s, 'FLOP/s', 3)} {ceilings.dtype}, DRAM "
        f"{quantity(ceilings.byte_s, 'B/s', 3)}{cache}, ridge {quantity(ceilings.ridge, 'FLOP/B', 3)}; "
        f"{source.get(ceilings.origin, 'from the report')}",
        "FMA = 2 FLOP, elementwise ops 1 per element; GB = 10^9 B; peaks are dense",
        "bytes are traced unless their source says ncu, so above the DRAM roof means operands in cache",
        "recoverable = (time - ideal) x launches, where that is positive; ideal = time at the roof; "
        "share = part of the wall time",
        "a kernel's time is that of the shortest recording; medians, quartiles and ± are of all recordings",
        "± = noise of a step's time, % of its median: half the distance of the quartiles around its trend over all "
        "steps and recordings (of fewer than 5 samples: half their range); 1x = one sample, noise not known",
        f"{MFU_MEANS}; {MBU_MEANS}",
    ]


def print_conventions(console: Console, ceilings: Ceilings) -> None:
    """Print the notes, wrapped to the console."""
    console.print()
    for line in conventions(ceilings):
        wrapped(console, line, "dim")


def wrapped(console: Console, words: str, style: str = "", indent: str = "") -> None:
    """Print words on as many lines as they need, all but the first two columns further in."""
    lines = textwrap.wrap(
        words, console.width, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    )
    for line in lines:
        console.print(line, style=style, markup=False)


def _without_blanks(console: Console, shown: Table) -> None:
    """Print a table whose lines end with their last letter."""
    from rich.text import Text

    for line in console.render_lines(shown, pad=False):
        text = Text.assemble(*((part.text, part.style or "") for part in line))
        text.rstrip()
        console.print(text, no_wrap=True, overflow="ignore", crop=False)


def _shown(rows: pd.DataFrame, summary: PhaseSummary, top: int) -> list[int]:
    gains, times = (list(map(_real, rows[c])) for c in ("recoverable_ns", "time_ns"))
    return leading(gains, times, top, summary.wall_ns)


def table(rows: pd.DataFrame, name: str, head: str, summary: PhaseSummary, width: int, top: int) -> Table:
    """A module or kernel table for `width` columns: the `top` rows and one for the rest.

    Rows without a verdict that take much time are among the `top`: see `kernelroof.roofline.large_rows`. Units are
    chosen per column, from its largest value, so that numbers can be compared down a column.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    places = _shown(rows, summary, top)
    shown, rest = rows.iloc[places], rows.drop(index=rows.index[places])
    columns = _fitting(_columns(shown, rest, summary), width)
    names = [str(n) if name == "label" else _module(str(n)) for n in shown[name]]
    names += [f"and {len(rest)} more"] if len(rest) else []
    room = width - sum(_width(c) + _BETWEEN for c in columns)
    wide = min(max(len(n) for n in [head, *names]), max(room, len(head)))
    out = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False, show_edge=False)
    out.add_column(head, no_wrap=True, width=wide)
    for column in columns:
        side: Any = "left" if column.key == "bound" else "right"
        out.add_column(column.head, justify=side, no_wrap=True, width=_width(column))
    for i, label in enumerate(names):
        cells = [Text(_short(label, wide))]
        cells += [Text(c.cells[i], style=_STYLES.get(c.cells[i], "") if c.key == "bound" else "") for c in columns]
        out.add_row(*cells)
    return out


def _columns(shown: pd.DataFrame, rest: pd.DataFrame, summary: PhaseSummary) -> list[_Column]:
    per = summary.steps if summary.steps > 1 else 1

    def amounts(key: str, head: str, unit: str, rank: int, *, time: bool = False) -> _Column:
        found: list[float | None] = [_real(v) for v in shown[key]]
        found += [_total(rest, key)] if len(rest) else []
        values = [v / per if v is not None else None for v in found]
        scale, prefix = _scale([v for v in values if v is not None], _TIMES if time else _PREFIXES)
        cells = [_DASH if v is None else _number(v / scale) for v in values]
        return _Column(key, f"{head}\n{prefix}{unit}", cells, rank)

    def plain(key: str, head: str, rank: int, form: Callable[[Any], str], *, summed: bool = False) -> _Column:
        cells = [_DASH if pd.isna(v) else form(v) for v in shown[key]]
        if len(rest):
            total = _total(rest, key) if summed else None
            cells.append("" if total is None else form(total))
        return _Column(key, head, cells, rank)

    columns = [
        amounts("time_ns", "time", "", 11, time=True),
        plain("share_pct", "share\n%", 8, _one_digit, summed=True),
        amounts("recoverable_ns", "recov.", "", 10, time=True),
        amounts("ideal_ns", "ideal", "", 8, time=True),
        plain("bound", "bound", 9, str),
        plain("pct_of_roof", "roof\n%", 9, _of_roof),
        amounts("flops", "work", "FLOP", 6),
        amounts("bytes", "bytes", "B", 7),
        plain("intensity", "FLOP\n/B", 5, _number),
        plain("launches", "launches", 3, lambda n: f"{n / per:g}", summed=True),
    ]
    if "est_ideal_ns" in shown:
        # Where FLOPs and bytes are the traced ones, the estimate has no others to show.
        if not _same(shown, "flops", "est_flops"):
            columns[-2:-2] = [amounts("est_flops", "est.", "FLOP", 2)]
        if not _same(shown, "bytes", "est_bytes"):
            columns[-2:-2] = [amounts("est_bytes", "est.", "B", 4)]
    if "samples" in shown and shown["samples"].notna().any():
        cells = [_noise(*row) for row in zip(shown["noise_pct"], shown["samples"], strict=True)]
        columns[1:1] = [_Column("noise_pct", "±\n%", cells + ([""] if len(rest) else []), 9)]
    return columns


def _noise(noise_pct: Any, samples: Any) -> str:
    if pd.isna(noise_pct):
        return "1x" if not pd.isna(samples) and int(samples) == 1 else _DASH
    return _one_digit(float(noise_pct))


def _same(rows: pd.DataFrame, measured: str, estimated: str) -> bool:
    known = rows[[measured, estimated]].dropna()
    return bool((known[measured] == known[estimated]).all())


def _fitting(columns: Sequence[_Column], width: int) -> list[_Column]:
    kept = list(columns)
    while len(kept) > 1 and _LEAST_NAME + sum(_width(c) + _BETWEEN for c in kept) > width:
        kept.remove(min(kept, key=lambda c: c.rank))
    return kept


def _width(column: _Column) -> int:
    return max([len(line) for line in column.head.split("\n")] + [len(c) for c in column.cells])


def _scale(values: Sequence[float], steps: Sequence[tuple[float, str]]) -> tuple[float, str]:
    largest = max((abs(v) for v in values), default=0.0)
    return next(((size, prefix) for size, prefix in steps if largest >= size), steps[-1])


def _number(value: float) -> str:
    """Three digits, at most two of them decimals."""
    if value == 0:
        return "0"
    if abs(value) < 0.005:
        return "<0.01"
    return fixed(value, 3)


def _one_digit(value: float) -> str:
    return f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"


def _of_roof(value: float) -> str:
    return f"{_one_digit(value)}!" if value > TOLERANCE_PCT else _one_digit(value)


def _percent(value: float | None) -> str:
    return _DASH if value is None else f"{fixed(value, 2) if value < 99.5 else f'{value:.0f}'} %"


def _time(value_ns: float | None, summary: PhaseSummary) -> str:
    if value_ns is None:
        return _DASH
    if summary.steps > 1:
        return f"{seconds(value_ns / summary.steps / 1e9, 3)}/step"
    return seconds(value_ns / 1e9, 3)


def _per(summary: PhaseSummary) -> str:
    return " per step" if summary.steps > 1 else ""


def _each(value: float | None, unit: str, summary: PhaseSummary) -> str:
    return quantity(None if value is None else value / max(1, summary.steps), unit, 3)


def _module(role: str) -> str:
    """A role without what every path of the model begins with."""
    short = role.removeprefix("model.")
    return short.removeprefix("layers.") if short != "layers.*" else short


def _short(words: str, room: int) -> str:
    """Cut in front: the end of a module path tells more than its beginning."""
    return words if len(words) <= room else f"…{words[len(words) - room + 1 :]}"


def _real(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _total(rows: pd.DataFrame, key: str) -> float | None:
    return None if key not in rows or rows[key].isna().all() else float(rows[key].sum())
