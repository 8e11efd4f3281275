"""The part of `analyze` for tables of measured latencies (parquet)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from kernelroof.profile.runfolder import RunFolder
from kernelroof.roofline.plot_silicon import silicon_roofline
from kernelroof.roofline.silicon import read_silicon, summary
from kernelroof.roofline.text import new_console


def run_silicon(paths: Sequence[Path], folder: RunFolder) -> list[str]:
    """Place the measured kernels, draw one picture for each dtype, print and write their shares of the roof.

    Returns the names of the pictures.
    """
    from kernelroof.profile.analyze_command import write_frame

    found = read_silicon(paths)
    table = pd.concat([summary(s) for s in found], ignore_index=True)
    write_frame(folder, "silicon.csv", table)
    names = []
    for dtype in dict.fromkeys(d for s in found for d in s.ceilings):
        names.append(f"silicon_{dtype}.png")
        silicon_roofline(found, dtype, folder.file(names[-1]))
    console = new_console()
    console.print("measured kernels: share of the datasheet's roof (%), by op and dtype", style="bold", markup=False)
    for row in table.to_dict("records"):
        shares = f"median {row['median_pct']:5.1f}  99 % below {row['p99_pct']:5.1f}  highest {row['max_pct']:6.1f}"
        what = f"{row['gpu']:<24} {row['op']:<21} {row['dtype']:<10} {row['rows']:>7,} rows"
        console.print(f"  {what}  {shares}  above 100: {row['above']:,}", markup=False, soft_wrap=True)
    return names
