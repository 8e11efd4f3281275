"""What the counters of a launch say about each other: missing figures, the order of intensities, doubts."""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
import pandas as pd
from kernelroof.roofline.place import moved_bytes, numbers, ratio
from kernelroof.roofline.units import fixed

SLACK = 1.05
"""Counters come from several passes, so equal quantities may differ by this factor."""
_ASKED = ("flops", "dram_bytes", "ncu_time_ns")
_REASON_KEYS = {"ncu_time_ns": "time_ns"}
_WHAT = {"flops": "FLOPs", "dram_bytes": "bytes", "ncu_time_ns": "duration"}


def null_reasons(rows: pd.DataFrame, only: str | None = None) -> pd.Series[str]:
    """Why figures of a row are null, in words; null where none is.

    Args:
        rows: with `reasons` (JSON by column) as in the counters table.
        only: the reason kept for one column, whether or not it is null.
    """
    if only is not None:
        texts = [_reason(None if pd.isna(r) else str(r), only) or None for r in rows["reasons"]]
        one: pd.Series[str] = pd.Series(texts, rows.index, dtype="string")
        return one
    nulls = {c: rows[c].isna().to_numpy(bool) for c in _ASKED}
    nulls["dram_bytes"] = np.isnan(moved_bytes(rows))
    counted = rows["joined"].notna().to_numpy(bool)
    words = []
    for at, text in enumerate(rows["reasons"]):
        if not counted[at]:
            words.append("not counted" if nulls["flops"][at] else None)
            continue
        known = None if pd.isna(text) else str(text)
        said = [f"{_WHAT[c]}: {_reason(known, _REASON_KEYS.get(c, c)) or 'not known'}" for c in _ASKED if nulls[c][at]]
        words.append("; ".join(said) or None)
    column: pd.Series[str] = pd.Series(words, rows.index, dtype="string")
    return column


@lru_cache(maxsize=4096)
def _reason(text: str | None, column: str) -> str:
    return str(json.loads(text).get(column, "")) if text else ""


def hierarchy_words(rows: pd.DataFrame) -> pd.Series[str]:
    """Where AI_L1 <= AI_L2 <= AI_DRAM does not hold, in words; null where it holds or can't be told.

    The counters of L1 and L2 see what goes towards the SMs, so what a kernel writes is only in the DRAM
    figure: where the order holds for reads alone, that is the cause.
    """
    flops = numbers(rows["flops"])
    moved, reads = moved_bytes(rows), numbers(rows["dram_read_bytes"])
    by_level = {"L1": numbers(rows["l1_bytes"]), "L2": numbers(rows["l2_bytes"]), "DRAM": moved}
    words: list[str | None] = [None] * len(rows)
    for inner, outer in (("L2", "DRAM"), ("L1", "L2")):
        a, b = by_level[inner], by_level[outer]
        with np.errstate(invalid="ignore"):
            wrong = (b > a * SLACK) & (flops > 0)
            by_reads = (reads <= a * SLACK) if outer == "DRAM" else np.zeros(len(rows), bool)
        intensity = [ratio(flops, x) for x in (a, b)]
        for at in np.flatnonzero(wrong):
            low, high = (fixed(float(x[at]), 3) if not np.isnan(x[at]) else "not defined" for x in intensity)
            cause = (
                f"{inner}'s counter holds no writes, and for reads alone the order holds"
                if by_reads[at]
                else f"more bytes left {outer} than reached {inner}: other traffic, prefetch, or another pass"
            )
            text = f"AI_{inner} {low} > AI_{outer} {high}: {cause}"
            words[at] = text if words[at] is None else f"{words[at]}; {text}"
    column: pd.Series[str] = pd.Series(words, rows.index, dtype="string")
    return column
