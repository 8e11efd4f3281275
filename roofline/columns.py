"""Tables as columns of plain JSON values: what a page holds, small enough to mail.

Missing is null. Texts that repeat stand once, with their numbers as codes. Figures keep six significant digits,
which is more than is shown anywhere; whole numbers stay whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

_DIGITS = 6


def figures(values: Iterable[Any]) -> list[float | int | None]:
    """Numbers for JSON: None where missing; integral ones as int, others with six significant digits."""
    return [figure(value) for value in values]


def figure(value: Any) -> float | int | None:
    """One number for JSON; None where it is missing or not finite."""
    if value is None or pd.isna(value):
        return None
    real = float(value)
    if not math.isfinite(real):
        return None
    if real == int(real):
        return int(real)
    short = float(f"{real:.{_DIGITS}g}")
    return int(short) if short == int(short) else short


def coded(values: Sequence[Any] | pd.Series[Any]) -> dict[str, list[Any]]:
    """Texts as `names`, each once, and `codes` into them; -1 where missing."""
    series = pd.Series(values, dtype="object")
    codes, names = pd.factorize(series.where(series.notna(), None))
    return {"codes": np.asarray(codes).tolist(), "names": [str(name) for name in names]}


def texts(values: Iterable[Any]) -> list[str | None]:
    """Texts for JSON, None where missing."""
    return [None if value is None or pd.isna(value) else str(value) for value in values]
