"""What makes the points of a measured sweep doubtful, in few words; and the line on its roofs.

sweep.csv has every doubt in full; beside tables, curves and conclusions stand its first words and the points.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd
from kernelroof.roofline.steady import AGREEING
from kernelroof.roofline.units import quantity

BETWEEN = " | "
"""Between the doubts of a row: they hold semicolons themselves."""
OWN_ROOFS = f"own roofs more than {100 * (AGREEING - 1):.0f} % lower"


def doubts_of(row: Mapping[str, Any]) -> list[str]:
    """The doubts of a row of sweep.csv, each in few words."""
    found = [] if pd.isna(row["doubts"]) else str(row["doubts"]).split(BETWEEN)
    # What was found comes first; figures and what to do follow.
    short = [re.split(r"[:;(]| from ", words)[0].strip() for words in found]
    return [*short, *([] if pd.isna(row["own_roofs"]) else [OWN_ROOFS])]


def doubt_words(rows: pd.DataFrame, axis: str) -> list[str]:
    """Each doubt of some rows with the points that have it, on one axis: "bare repeats spread (batch 4, 8)"."""
    points: dict[str, list[Any]] = {}
    for row in rows.to_dict("records"):
        for words in doubts_of({str(k): v for k, v in row.items()}):
            points.setdefault(words, []).append(row[axis])
    return [
        f"{words} ({'all' if len(at) == len(rows) else f'{axis} ' + ', '.join(map(str, at))})"
        for words, at in points.items()
    ]


def doubt_lines(table: pd.DataFrame, axis: str) -> list[str]:
    """Each doubt of the whole table, with its points by phase and curve."""
    other = "prompt" if axis == "batch" else "batch"
    points: dict[str, list[str]] = {}
    owners: dict[str, int] = {}
    for (phase, at), curve in table.groupby(["phase", other], sort=False):
        seen: dict[str, list[Any]] = {}
        for row in curve.sort_values(axis).to_dict("records"):
            for words in doubts_of({str(k): v for k, v in row.items()}):
                seen.setdefault(words, []).append(row[axis])
        for words, values in seen.items():
            owners[words] = owners.get(words, 0) + len(values)
            curve_words = f", {other} {at}" if table[other].nunique() > 1 else ""
            which = f"all of {axis}" if len(values) == len(curve) > 1 else f"{axis} {', '.join(map(str, values))}"
            points.setdefault(words, []).append(f"{phase}{curve_words}: {which}")
    return [
        f"{words} – {'every point' if owners[words] == len(table) else '; '.join(where)}"
        for words, where in points.items()
    ]


def roofs_line(table: pd.DataFrame) -> str:
    """Which roofs every figure of the table is at."""
    row = table.iloc[0]
    return (
        f"{row['device']}: roofs {quantity(float(row['roof_flop_s']), 'FLOP/s', 3)} {row['dtype']}, DRAM "
        f"{quantity(float(row['roof_byte_s']), 'B/s', 3)}, ridge "
        f"{quantity(float(row['ridge_flop_per_byte']), 'FLOP/B', 3)} ({row['roofs']})"
    )
