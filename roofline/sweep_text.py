"""A measured sweep for a terminal: a table of its points, what makes them doubtful, and what its curves say."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from kernelroof.roofline.sweep_doubts import doubt_words, doubts_of, roofs_line
from kernelroof.roofline.sweep_points import axis_of, findings
from kernelroof.roofline.text_table import text_table
from kernelroof.roofline.units import fixed, seconds

_DASH = "–"
_WIDTH = 100
_EXPECTED, _INTENSITY, _BOUND = "expected", "FLOP/B", "model"
_HEADS = (
    *("batch", "prompt", "time", "low - high", "ideal", _EXPECTED, "ideal %", "tok/s"),
    *(_INTENSITY, _BOUND, "roof %", ""),
)
_MEANS = (
    "time = mean over forwards of each one's median of the bare repeats; low - high = the same of each one's fastest "
    "and slowest repeat (whole repeats: repeat_low_ms and repeat_high_ms in sweep.csv)",
    "ideal = the model's closed form at these roofs; ideal % = of the time; roof % = of the kernels' time; model = the "
    "roof that bounds it",
)


def sweep_lines(table: pd.DataFrame, failed: Sequence[tuple[str, str]]) -> list[str]:
    """Lines of at most 100 columns; `failed`: a point and its error."""
    out: list[str] = []
    axis = axis_of(table)
    # Both columns are more than a terminal holds.
    hidden = _INTENSITY if table["expected_ms"].notna().any() else _EXPECTED
    heads = [h for h in _HEADS if h != hidden]
    for phase in dict.fromkeys(table["phase"]):
        rows = table[table["phase"] == phase].sort_values(["prompt", "batch"])
        cells = [_cells({str(k): v for k, v in row.items()}) for row in rows.to_dict("records")]
        body = [[cell[h] for h in heads] for cell in cells]
        lines = text_table(heads, body, left=(heads.index(_BOUND),)).splitlines()
        out += ["", f"{phase}: measured beside the estimate", *lines]
        for row in rows.to_dict("records"):
            if pd.notna(row["own_roofs"]):
                out += _wrapped(f"! batch {row['batch']}, prompt {row['prompt']}: {row['own_roofs']}")
        named = rows.assign(own_roofs=None)  # said above, with its figures
        name = axis if rows["prompt" if axis == "batch" else "batch"].nunique() == 1 else "batch x prompt"
        if name != axis:
            named[name] = [f"{b} x {p}" for b, p in zip(rows["batch"], rows["prompt"], strict=True)]
        for words in doubt_words(named, name):
            out += _wrapped(f"! {words}")
    out += ["", *_wrapped(f"all at the same roofs: {roofs_line(table)}")]
    for words in (*_MEANS, *_expected(table)):
        out += _wrapped(words)
    out.append("")
    for words in findings(table):
        out += _wrapped(words)
    for point, error in failed:
        out += _wrapped(f"FAILED {point}: {error}")
    return out


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    words = (
        str(row["batch"]),
        str(row["prompt"]),
        _time(row["wall_ms"]),
        _range(row["wall_low_ms"], row["wall_high_ms"]),
        _time(row["ideal_ms"]),
        _time(row["expected_ms"]),
        _number(row["pct_of_ideal"]),
        _number(row["tokens_per_s"]),
        _number(row["intensity"]),
        _DASH if pd.isna(row["model_bound"]) else str(row["model_bound"]),
        _number(row["pct_of_roof"]),
        "!" if doubts_of(row) else "",
    )
    return dict(zip(_HEADS, words, strict=True))


def _expected(table: pd.DataFrame) -> list[str]:
    """What the expected times rest on, or why there are none."""
    notes: dict[str, list[str]] = {}
    for row in table.to_dict("records"):
        notes.setdefault(str(row["expected_note"]), []).append(f"{row['phase']} {row['batch']}x{row['prompt']}")
    return [
        f"expected{'' if len(notes) == 1 else ' (' + ', '.join(points) + ')'}: {note}" for note, points in notes.items()
    ]


def _range(low: Any, high: Any) -> str:
    """ "82.6 - 86.1 ms": the unit once where both have it."""
    if pd.isna(low):
        return _DASH
    words = seconds(float(low) / 1e3, 3), seconds(float(high) / 1e3, 3)
    (first, unit), (second, same) = (w.split() for w in words)
    return f"{first} - {second} {unit}" if unit == same else f"{words[0]} - {words[1]}"


def _wrapped(words: str) -> list[str]:
    return textwrap.wrap(words, _WIDTH, subsequent_indent="  ")


def _time(ms: Any) -> str:
    return _DASH if ms is None or pd.isna(ms) else seconds(float(ms) / 1e3, 3)


def _number(value: Any) -> str:
    return _DASH if value is None or pd.isna(value) else fixed(float(value), 3)
