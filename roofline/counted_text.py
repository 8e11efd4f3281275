"""What `analyze` says on a terminal: roofs, kernels, verdicts, and what the figures rest on."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from kernelroof.parsers.kernel_names import cut
from kernelroof.roofline.report_ceilings import ReportCeilings, find_type
from kernelroof.roofline.units import counted, fixed, plain_type, quantity, seconds
from kernelroof.roofline.verdict import NOT_COUNTED

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {"compute": "green", "memory": "cyan", "latency": "yellow", "inefficient": "red", "unknown": "magenta"}
_DASH = "–"


def print_kernels(console: Console, kernels: pd.DataFrame, top: int, clock: str) -> None:
    """The kernels with most time on one clock, as a table and a sentence for each."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    where = "inside ncu" if clock == "ncu" else "on the timeline"
    total = float(kernels["time_ns"].sum())
    launches = int(kernels["launches"].sum())
    console.print()
    ran = f"{counted(len(kernels), 'different kernel')}, {counted(launches, 'execution')}"
    console.print(
        f"{where}: {ran}, {seconds(total / 1e9, 3)}",
        style="bold",
        markup=False,
    )
    judged = bool(kernels[["dram_pct", "sm_pct", "sm_pct_at_least", "intensity"]].notna().any(axis=None))
    ops = bool(kernels["op"].notna().any()) and not judged
    heads = ["launches", "time", "share\n%", *(["roof\n%", "DRAM\n%", "SM\n%", "FLOP\n/B"] if judged else [])]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False, show_edge=False)
    wide = max(24, console.width - (68 if judged else 62 if ops else 36))
    table.add_column("kernel", no_wrap=True, width=wide)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    if judged or ops:
        table.add_column("bound" if judged else "launching op", no_wrap=True)
    for row in kernels.head(top).to_dict("records"):
        cells = [f"{int(row['launches']):,}", seconds(_real(row["time_ns"], 1e-9), 3), _one(row["share_pct"])]
        last = Text(_DASH if pd.isna(row["op"]) else cut(str(row["op"]), 28))
        if judged:
            sm = _one(row["sm_pct"]) if pd.notna(row["sm_pct"]) else _one(row["sm_pct_at_least"], "≥")
            at = _DASH if pd.isna(row["intensity"]) else f"{row['intensity']:.3g}"
            cells += [_one(row["pct_of_roof"]), _one(row["dram_pct"]), sm, at]
            last = Text(str(row["bound"]), style=_STYLES.get(str(row["bound"]), ""))
        ends = [last] if judged or ops else []
        table.add_row(Text(cut(str(row["label"]), wide)), *cells, *ends)
    if len(kernels) > top:
        rest = kernels.iloc[top:]
        share = _one(float(rest["share_pct"].sum()))
        table.add_row(Text(f"and {len(rest)} more"), "", seconds(float(rest["time_ns"].sum()) / 1e9, 3), share)
    console.print(table)
    shown = kernels.head(top)
    if (shown["sm_pct"].isna() & shown["sm_pct_at_least"].notna()).any():
        said(console, "≥: at least this; the report has units of the SM, not the SM as a whole", "dim")


def print_verdicts(console: Console, kernels: pd.DataFrame, top: int) -> None:
    """One sentence for each kernel that takes most time."""
    console.print()
    if (kernels["verdict"] == NOT_COUNTED).all():
        said(console, "no verdicts: durations only, no FLOPs and no bytes were counted")
        return
    for row in kernels.head(top).to_dict("records"):
        said(console, f"{cut(str(row['label']), 48)}: {row['verdict']}")


def print_roofs(console: Console, found: ReportCeilings, where: str, types: Sequence[str] = ()) -> None:
    """The roofs of one clock, with origin and clock of each."""
    parts = [f"{level} {quantity(r.rate, 'B/s', 4)} ({r.origin})" for level, r in found.memory.items()]
    wanted = (find_type(t, found.compute) for t in (found.headline, *types) if t)
    for name in dict.fromkeys(t for t in wanted if t):
        roof = found.compute[name]
        each = next((v for k, v in found.per_sm_cycle.items() if k == name), None)
        per = f", {fixed(each, 4)} FLOP per SM and cycle" if each else ""
        parts.append(f"{plain_type(name)} {quantity(roof.rate, 'FLOP/s', 4)} dense ({roof.origin}, {roof.clock}{per})")
    said(console, f"roofs {where}, {found.gpu}: {'; '.join(parts) or 'none known'}")
    for note in found.notes:
        said(console, f"  {note}", "dim")


def print_phases(console: Console, phases: pd.DataFrame) -> None:
    """Each phase's kernels, and apart from them the sum and union of all its GPU work."""
    for row in phases.to_dict("records"):
        if row["kernels"]:
            of = "" if row["launches"] == row["kernels"] else f" in {counted(row['launches'], 'launch')}"
            rest = row["sum_ns"] - row["kernel_ns"]
            others = f"; with copies, memsets and whole graphs {seconds(row['sum_ns'] / 1e9, 4)}" if rest else ""
            said(
                console,
                f"{row['device']} {row['phase']}: {counted(row['kernels'], 'kernel')}{of}, "
                f"{seconds(row['kernel_ns'] / 1e9, 4)}{others}; GPU busy {seconds(row['busy_ns'] / 1e9, 4)}",
            )


def said(console: Console, words: str, style: str = "") -> None:
    """One line, wrapped to the console."""
    for line in textwrap.wrap(words, console.width, subsequent_indent="  ", break_on_hyphens=False):
        console.print(line, style=style, markup=False)


def _real(value: Any, factor: float = 1.0) -> float | None:
    return None if pd.isna(value) else float(value) * factor


def _one(value: Any, sign: str = "") -> str:
    if pd.isna(value):
        return _DASH
    return f"{sign}{value:.1f}" if abs(value) < 99.95 else f"{sign}{value:.0f}"
