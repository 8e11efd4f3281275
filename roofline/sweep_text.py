"""A measured sweep for a terminal: a table of its points and what its curves say."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
from kernelroof.roofline.sweep_points import findings
from kernelroof.roofline.text_table import text_table
from kernelroof.roofline.units import fixed, seconds

_DASH = "–"


def sweep_lines(table: pd.DataFrame, failed: Sequence[tuple[str, str]]) -> list[str]:
    """Lines of at most 100 columns; `failed`: a point and its error."""
    out: list[str] = []
    for phase in dict.fromkeys(table["phase"]):
        body = []
        for row in table[table["phase"] == phase].sort_values(["prompt", "batch"]).to_dict("records"):
            body.append(
                [
                    str(row["batch"]),
                    str(row["prompt"]),
                    seconds(row["wall_ms"] / 1e3, 3),
                    f"{seconds(row['wall_low_ms'] / 1e3, 3)} - {seconds(row['wall_high_ms'] / 1e3, 3)}",
                    _time(row["ideal_ms"]),
                    _number(row["pct_of_ideal"]),
                    _number(row["tokens_per_s"]),
                    _number(row["ideal_tokens_per_s"]),
                    _number(row["intensity"]),
                    str(row["model_bound"] or _DASH),
                    _number(row["pct_of_roof"]),
                ]
            )
        heads = [
            "batch",
            "prompt",
            "time",
            "repeats",
            "ideal",
            "ideal %",
            "tok/s",
            "ideal",
            "FLOP/B",
            "model",
            "roof %",
        ]
        out += ["", f"{phase}: measured beside the estimate", *text_table(heads, body, left=(9,)).splitlines()]
    out.append("")
    for words in findings(table):
        out += textwrap.wrap(words, 100, subsequent_indent="  ")
    for point, error in failed:
        out += textwrap.wrap(f"FAILED {point}: {error}", 100, subsequent_indent="  ")
    return out


def _time(ms: Any) -> str:
    return _DASH if ms is None or pd.isna(ms) else seconds(float(ms) / 1e3, 3)


def _number(value: Any) -> str:
    return _DASH if value is None or pd.isna(value) else fixed(float(value), 3)
