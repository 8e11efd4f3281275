"""The part of `analyze` for tables of measured latencies (parquet)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from kernelroof.profile.runfolder import RunFolder
from kernelroof.roofline.plot_silicon import silicon_roofline
from kernelroof.roofline.silicon import read_silicon, summary
from kernelroof.roofline.text import new_console
from kernelroof.roofline.units import fixed


def run_silicon(
    paths: Sequence[Path], folder: RunFolder, formats: Sequence[str] = ("png",)
) -> tuple[list[str], pd.DataFrame]:
    """Place the measured kernels, draw one picture for each dtype, write their shares of the roof.

    Returns the names of the pictures, and the shares.
    """
    from kernelroof.profile.analyze_command import write_frame

    found = read_silicon(paths)
    table = pd.concat([summary(s) for s in found], ignore_index=True)
    write_frame(folder, "silicon.csv", table)
    names = []
    for dtype in dict.fromkeys(d for s in found for d in s.ceilings):
        names.append(f"silicon_{dtype}.png")
        silicon_roofline(found, dtype, folder.file(names[-1]), formats)
    return names, table


def print_silicon(table: pd.DataFrame) -> None:
    """Shares of the roof (`silicon.summary`) as a table."""
    from rich import box
    from rich.table import Table

    console = new_console()
    console.print("measured kernels: share of the datasheet's roof (%), by op and dtype", style="bold", markup=False)
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False, show_edge=False)
    for head in ("GPU", "op", "dtype"):
        shown.add_column(head, no_wrap=True)
    for head in ("rows", "median", "99 %\nbelow", "highest", "rows\nabove\n100"):
        shown.add_column(head, justify="right", no_wrap=True)
    for row in table.to_dict("records"):
        shares = (fixed(float(row[f"{name}_pct"]), 3) for name in ("median", "p99", "max"))
        shown.add_row(row["gpu"], row["op"], row["dtype"], f"{row['rows']:,}", *shares, f"{row['above']:,}")
    console.print(shown)
