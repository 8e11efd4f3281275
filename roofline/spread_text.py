"""The spread of a phase's kernels in words."""

from __future__ import annotations

import pandas as pd
from kernelroof.roofline.units import counted, fixed


def samples(spread: pd.DataFrame, phase: str) -> str:
    """One line on how many samples a phase's kernels have, and by how much they differ.

    Args:
        spread: of `spread.step_spread`.
    """
    rows = spread[(spread["phase"] == phase) & (spread["scope"] == "phase")]
    if rows.empty:
        return f"{phase}: no kernel has a step, so the spread of their times is not known"
    row = rows.iloc[0]
    if row["samples"] < 2:
        return f"{phase}: its kernels were recorded in one forward only; the spread of their times is not known"
    words = f"{phase}: its kernels were recorded in {counted(int(row['samples']), 'forward')}"
    words += f" of {int(row['recordings'])} pass{'es' if row['recordings'] > 1 else ''}"
    if pd.isna(row["noise_pct"]):
        return f"{words}; {row['reason']}"
    words += f"; their sum per forward: ± {fixed(float(row['noise_pct']), 2)} %"
    if not pd.isna(row["between_pct"]):
        words += f", passes ± {fixed(float(row['between_pct']), 2)} %"
    return words if pd.isna(row["reason"]) else f"{words} ({row['reason']})"
