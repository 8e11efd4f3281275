"""Rows of a kernel or module table that have no verdict though they take much time: they must not go unseen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from kernelroof.roofline.match_rows import SHARED

LARGE = 0.05
"""Above this part of a phase's time, what has no verdict is named."""
_MOST = 2


def leading(recoverable: Sequence[float | None], time: Sequence[float | None], top: int, whole: float) -> list[int]:
    """Positions of the rows to show of a table that is sorted by recoverable time: the first, and large ones without.

    Args:
        recoverable, time: of each row, None where not known.
        top: rows to show in all; rows without a verdict that take more than `LARGE` of the `whole` time, at most
            two, take the place of the last of them, but for the first.
    """
    unjudged = [i for i, (gain, spent) in enumerate(zip(recoverable, time, strict=True)) if gain is None and spent]
    large = sorted((i for i in unjudged if (time[i] or 0) > LARGE * whole), key=lambda i: -(time[i] or 0))[:_MOST]
    always = {0, *large} if len(time) else set()
    others = [i for i in range(len(time)) if i not in always]
    chosen = always | set(others[: max(0, top - len(always))])
    # Those that would be beneath the table's end come last, most time first.
    return [*sorted(i for i in chosen if i < top or i not in large), *(i for i in large if i >= top)]


def without_verdict(kernels: pd.DataFrame) -> pd.DataFrame:
    """The rows of a kernel table that were recorded but not judged, most time first.

    Kernels of one op that are judged together, in their module, have a verdict there.
    """
    together = kernels["reason"].astype("string").str.contains(SHARED, regex=False).fillna(False).to_numpy(bool)
    rows = kernels[kernels["recoverable_ns"].isna() & kernels["time_ns"].notna() & ~together]
    ordered: pd.DataFrame = rows.sort_values("time_ns", ascending=False, kind="stable")
    return ordered


def reason_of(row: Mapping[Any, Any] | pd.Series[Any]) -> str:
    """Why a row has no verdict, without the list of its ops."""
    reason = row["reason"]
    return "it is not known why" if pd.isna(reason) else re.sub(r" \(ops of .*\)$", "", str(reason))
