"""The raw page of Nsight Compute's CSV: one row for each kernel, one column for each metric.

The row under the header holds the units. pandas parses the clean table; what it can't read as numbers
(separators, instance lists, text) is looked at column by column afterwards.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from io import BytesIO, StringIO
from typing import Any

import numpy as np
import pandas as pd
from kernelroof.parsers.csv_text import TextTable
from kernelroof.parsers.ncu_page import NUMBER_HEADERS, NcuPage, identity_frame, is_identity_header, with_launch
from kernelroof.parsers.printed_numbers import (
    C_LOCALE,
    MISSING,
    Style,
    check_style,
    evidence,
    parse_column,
    scaled,
)
from kernelroof.parsers.units import base_unit

_SAMPLE = 4096


def is_raw(header: tuple[str, ...]) -> bool:
    """Whether a header is that of a raw page."""
    return "ID" in header and "Kernel Name" in header and "Metric Name" not in header


def read_raw(table: TextTable, c_locale: bool = False) -> NcuPage:
    """Read one raw page.

    Args:
        table: the table found in the file.
        c_locale: the file is known to be written with LC_ALL=C; then no number is ambiguous.

    Raises:
        AmbiguousNumberError: a number that the file's other numbers leave open.
    """
    header = _distinct(table.header)
    units, begin = _take_units(header, table.body)
    frame = _parse(header, table.body, begin)
    frame, strays = _kernels_only(frame)
    metrics = [h for h in header if not is_identity_header(h)]
    style = _style(frame, metrics, c_locale)
    if not c_locale and _dot_may_group(style):
        # What pandas took for decimals may be thousands: all cells are looked at as they were printed.
        frame, strays = _kernels_only(_parse(header, table.body, begin, as_text=True))
        style = evidence(_cells(frame, metrics))
        check_style(style, f"the table at line {table.line}")
    values, texts = _split(frame, metrics, units, style)
    notes = [f"{strays} rows without a kernel number were left out"] if strays else []
    notes += [f"{table.dropped} incomplete rows at the end were left out"] if table.dropped else []
    return NcuPage(
        kind="raw",
        identity=with_launch(identity_frame(frame[[h for h in header if is_identity_header(h)]]), values),
        values=values,
        texts=texts,
        units={str(name): base_unit(units.get(str(name), "")).name for name in values},
        notes=tuple(notes),
    )


def _distinct(header: tuple[str, ...]) -> list[str]:
    """Header cells made distinct; a repeated metric keeps its first column's name."""
    seen: dict[str, int] = {}
    out = []
    for cell in header:
        count = seen.get(cell, 0)
        seen[cell] = count + 1
        out.append(f"{cell}#{count}" if count else cell)
    return out


def _take_units(header: list[str], body: bytes) -> tuple[dict[str, str], int]:
    """The units by column and where the rows below them begin; none where the first row is already a kernel's."""
    end = body.find(b"\n")
    end = len(body) if end < 0 else end
    cells = next(csv.reader(StringIO(body[:end].decode("utf-8", "replace"))), [])
    at = header.index("ID")
    if len(cells) <= at or cells[at].strip():
        return {}, 0
    return dict(zip(header, (c.strip() for c in cells), strict=False)), end + 1


def _parse(header: list[str], body: bytes, begin: int, as_text: bool = False) -> pd.DataFrame:
    if not body[begin : begin + 1]:
        empty: pd.DataFrame = pd.DataFrame({h: pd.Series(dtype="object") for h in header})
        return empty
    text = BytesIO(body)
    text.seek(begin)
    dtypes: dict[Any, Any] = {h: "category" for h in header if is_identity_header(h) and h not in NUMBER_HEADERS}
    metrics = [h for h in header if not is_identity_header(h)]
    if as_text:
        dtypes |= dict.fromkeys(metrics, "object")
    frame: pd.DataFrame = pd.read_csv(
        text,
        header=None,
        names=header,
        index_col=False,
        dtype=dtypes,
        keep_default_na=False,
        na_values={} if as_text else {m: list(MISSING) for m in metrics},
        on_bad_lines="skip",
        low_memory=False,
        encoding_errors="replace",
    )
    return frame


def _kernels_only(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Only rows with a kernel number, and how many others there were."""
    number = frame["ID"]
    if pd.api.types.is_numeric_dtype(number):
        keep = number.notna().to_numpy()
    else:
        keep = number.astype("object").map(lambda x: str(x).replace(",", "").strip().isdigit()).to_numpy(dtype=bool)
    if keep.all():
        return frame.reset_index(drop=True), 0
    return frame[keep].reset_index(drop=True), int((~keep).sum())


def _text_columns(frame: pd.DataFrame, metrics: list[str]) -> list[str]:
    return [m for m in metrics if not pd.api.types.is_numeric_dtype(frame[m])]


def _cells(frame: pd.DataFrame, metrics: list[str]) -> Iterable[str]:
    for name in _text_columns(frame, metrics):
        for value in pd.unique(frame[name].astype("object")):
            if isinstance(value, str):
                yield value


def _style(frame: pd.DataFrame, metrics: list[str], c_locale: bool) -> Style:
    """The roles of comma and dot; numbers that pandas could read as they are are evidence for the dot."""
    if c_locale:
        return C_LOCALE
    style = evidence(_cells(frame, metrics))
    if not (style.comma_decimal or style.comma_group or style.lone_comma or style.dot_group or style.lone_dot):
        return style
    if not style.comma_decimal and _dot_is_decimal(frame, metrics):
        style = style.joined(Style(dot_decimal=True))
    if not _dot_may_group(style):
        check_style(style)
    return style


def _dot_may_group(style: Style) -> bool:
    """Whether, by the cells that are no plain numbers, a dot may stand between thousands."""
    unsettled = bool(style.lone_comma) and not style.comma_group
    return style.comma_decimal or (not style.dot_decimal and (style.dot_group or unsettled))


def _dot_is_decimal(frame: pd.DataFrame, metrics: list[str]) -> bool:
    """Whether a numeric column holds a value that no grouping by thousands can print (5.79, 0.123456)."""
    for name in metrics:
        if pd.api.types.is_float_dtype(frame[name]):
            values = frame[name].to_numpy(dtype=np.float64)[:_SAMPLE]
            values = values[np.isfinite(values)]
            hundredths = values * 100
            whole = values == np.rint(values)
            if bool(
                (~whole & (np.abs(hundredths - np.rint(hundredths)) < 1e-6)).any() or (np.abs(values) < 1)[~whole].any()
            ):
                return True
    return False


def _split(
    frame: pd.DataFrame, metrics: list[str], units: dict[str, str], style: Style
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The metric columns as floats in base units, and those that are text."""
    values: dict[str, Any] = {}
    texts: dict[str, Any] = {}
    for name in metrics:
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column):
            numbers = column.to_numpy(dtype=np.float64)
        else:
            numbers, numeric = parse_column(column, style)
            if not numeric:
                texts[name] = column.astype("string")
                continue
        values[name] = scaled(numbers, base_unit(units.get(name, "")).factor)
    index = frame.index
    return pd.DataFrame(values, index=index, copy=False), pd.DataFrame(texts, index=index)


def join_pages(pages: list[NcuPage]) -> NcuPage:
    """Several tables of one file as one page, in order; units are base units, so columns agree."""
    if len(pages) == 1:
        return pages[0]
    first = pages[0]
    units = {k: v for page in reversed(pages) for k, v in page.units.items()}
    return replace(
        first,
        identity=pd.concat([p.identity for p in pages], ignore_index=True),
        values=pd.concat([p.values for p in pages], ignore_index=True),
        texts=pd.concat([p.texts for p in pages], ignore_index=True),
        rules=pd.concat([p.rules for p in pages], ignore_index=True),
        units=units,
        labels={k: v for p in reversed(pages) for k, v in p.labels.items()},
        notes=tuple(dict.fromkeys(n for p in pages for n in p.notes)),
    )
