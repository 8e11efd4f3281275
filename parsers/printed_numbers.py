"""Numbers as a locale prints them: thousands separators, decimal commas, missing values.

What a comma or a dot means is decided by evidence from the whole file. A cell that means one thing in
one locale and a thousand times that in another, with evidence against the plain reading, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.parsers.ncu_errors import AmbiguousNumberError

MISSING = ("", "no data", "n/a", "N/A", "nan", "NaN", "-nan", "inf", "-inf")
"""Cells that stand for no value. Never zero. (A ratio over zero prints as nan or inf.)"""

Floats = npt.NDArray[np.float64]

_SPACES = " \u00a0\u202f\u2009'\u2019"
_SPACED = re.compile(rf"[-+]?\d{{1,3}}(?:[{_SPACES}]\d{{3}})+(?:[.,]\d+)?")
_LONE = re.compile(r"[-+]?[1-9]\d{0,2}([.,])\d{3}")
_ONE_MARK = re.compile(r"[-+]?\d+([.,])\d+")
_GROUPS = re.compile(r"[-+]?\d{1,3}(?:([.,])\d{2,3})(?:\1\d{2,3})*\1\d{3}(?:(?!\1)[.,]\d+)?")
_GROUP_AND_MARK = re.compile(r"[-+]?\d{1,3}([.,])\d{3}(?!\1)[.,]\d+")
_INSTANCES = re.compile(r"\s*\([^()]*\)\s*$")


class Style(NamedTuple):
    """What is known of a file's two marks; each is the evidence for one role."""

    dot_decimal: bool = False
    comma_decimal: bool = False
    dot_group: bool = False
    comma_group: bool = False
    lone_dot: str = ""
    lone_comma: str = ""

    def joined(self, other: Style) -> Style:
        """The evidence of both."""
        return Style(*(a or b for a, b in zip(self, other, strict=True)))  # type: ignore[arg-type]


C_LOCALE = Style(dot_decimal=True)
"""A file that was written with LC_ALL=C: a dot is decimal, whatever else is in it."""


def evidence(cells: Iterable[str]) -> Style:
    """Which role each mark has, from the cells where only one reading makes sense."""
    seen = {"dot_decimal": False, "comma_decimal": False, "dot_group": False, "comma_group": False}
    lone = {".": "", ",": ""}
    name = {".": "dot", ",": "comma"}
    for cell in cells:
        text = cell.strip()
        if _LONE.fullmatch(text):
            mark = "." if "." in text else ","
            lone[mark] = lone[mark] or text
        elif _SPACED.fullmatch(text):
            if "." in text or "," in text:
                seen[f"{name['.' if '.' in text else ',']}_decimal"] = True
        elif found := _ONE_MARK.fullmatch(text):
            seen[f"{name[found[1]]}_decimal"] = True
        elif found := (_GROUPS.fullmatch(text) or _GROUP_AND_MARK.fullmatch(text)):
            seen[f"{name[found[1]]}_group"] = True
            other = "," if found[1] == "." else "."
            if other in text:
                seen[f"{name[other]}_decimal"] = True
    return Style(**seen, lone_dot=lone["."], lone_comma=lone[","])


def check_style(style: Style, where: str = "") -> None:
    """Refuse a file with a lone `129.977` whose meaning the rest of the file puts in doubt.

    Raises:
        AmbiguousNumberError: names the cell and LC_ALL=C.
    """
    bad = ""
    if style.lone_dot and not (style.dot_group and not style.dot_decimal):
        unsettled = style.lone_comma and not style.dot_decimal and not style.comma_group
        bad = style.lone_dot if style.comma_decimal or style.dot_group or unsettled else ""
    if not bad and style.lone_comma and style.comma_decimal and (style.comma_group or style.dot_decimal):
        bad = style.lone_comma
    if bad:
        place = f" in {where}" if where else ""
        raise AmbiguousNumberError(
            f"The number {bad}{place} can be read in two ways: "
            f"{bad.replace('.', '').replace(',', '')} or {bad.replace(',', '.')}"
        )


def _group_marks(style: Style) -> tuple[str, bool]:
    """Marks to remove, and whether a comma is then the decimal mark."""
    comma_is_decimal = style.comma_decimal and not style.dot_decimal
    if comma_is_decimal or (style.dot_group and not style.dot_decimal):
        return ".", True
    return ",", False


def parse_cell(cell: str, style: Style) -> float:
    """One cell as a number; NaN where it holds none. Assumes `check_style` has passed."""
    text = cell.strip()
    if text in MISSING:
        return float("nan")
    if text.endswith(")"):
        text = _INSTANCES.sub("", text)
    if _SPACED.fullmatch(text):
        for mark in _SPACES:
            text = text.replace(mark, "")
    group, comma_is_decimal = _group_marks(style)
    if "." in text and "," in text:
        comma_is_decimal = text.rindex(",") > text.rindex(".")
        group = "." if comma_is_decimal else ","
    elif style.dot_decimal and style.comma_decimal and _ONE_MARK.fullmatch(text) and not _LONE.fullmatch(text):
        group, comma_is_decimal = "", "," in text
    elif text.count(".") > 1:
        group = "."
    text = text.replace(group, "") if group else text
    if comma_is_decimal:
        text = text.replace(",", ".")
    try:
        value = float(text) if text[:1] in "-+.0123456789" and "_" not in text else float("nan")
    except ValueError:
        return float("nan")
    return value if np.isfinite(value) else float("nan")


def parse_column(column: pd.Series[Any], style: Style) -> tuple[Floats, bool]:
    """A column of printed numbers as floats, and whether every cell that is not missing was a number."""
    codes, unique = pd.factorize(column.astype("object"), use_na_sentinel=True)
    texts = [str(u) for u in unique]
    values = np.array([parse_cell(t, style) for t in texts] + [np.nan], dtype=np.float64)
    numeric = all(t.strip() in MISSING or not np.isnan(v) for t, v in zip(texts, values[:-1], strict=True))
    return values[codes], numeric


def scaled(values: Floats, factor: float) -> Floats:
    """values x factor, without the last-digit noise of binary fractions (25.170048 x 1e6 is 25170048)."""
    if factor == 1.0:
        return values
    out = values * factor
    nearest = np.rint(out)
    with np.errstate(invalid="ignore"):
        close = np.abs(out - nearest) <= 4 * np.spacing(np.abs(out))
    return np.where(close, nearest, out)
