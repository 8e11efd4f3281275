"""The details page of Nsight Compute's CSV: one row for each kernel and metric, and rule rows among them.

All generations of its header, from 2019's `SOL FB` and `Kernel Time` to `Body Item Label`. Metrics are
printed under labels that changed over the years; a label is brought to the metric's real name where it is
known, and the label is kept. Metric rows are shorter than the header where it has rule columns.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
from kernelroof.parsers.csv_text import TextTable
from kernelroof.parsers.ncu_labels import LABELS
from kernelroof.parsers.ncu_page import NcuPage, identity_frame, is_identity_header
from kernelroof.parsers.printed_numbers import C_LOCALE, check_style, evidence, parse_column, scaled
from kernelroof.parsers.units import base_unit

RULES = {
    "Section Name": "section",
    "Rule Name": "rule",
    "Rule Type": "kind",
    "Rule Description": "description",
    "Estimated Speedup Type": "speedup_kind",
    "Estimated Speedup": "speedup_pct",
}
_NAMED = re.compile(r".*\((?P<name>[\w:]+(?:__|:)[\w.:]+)\)")


def is_details(header: tuple[str, ...]) -> bool:
    """Whether a header is that of a details page."""
    return {"ID", "Kernel Name", "Metric Name", "Metric Value"} <= set(header)


def read_details(table: TextTable, c_locale: bool = False) -> NcuPage:
    """Read one details page.

    Args:
        table: the table found in the file.
        c_locale: the file is known to be written with LC_ALL=C; then no number is ambiguous.

    Raises:
        AmbiguousNumberError: a number that the file's other numbers leave open.
    """
    frame = _parse(table)
    launch = _launches(frame)
    starts = np.flatnonzero(np.r_[True, launch[1:] != launch[:-1]]) if len(frame) else np.array([], dtype=np.int64)
    identity = identity_frame(
        frame.iloc[starts][[h for h in table.header if is_identity_header(h)]].reset_index(drop=True)
    )
    metric = frame["Metric Name"].astype("object").fillna("").ne("").to_numpy(dtype=bool)
    rows = frame[metric]
    values, texts, units, labels = _wide(rows, launch[metric], len(identity), c_locale, table.line)
    notes = (f"{table.dropped} incomplete rows at the end were left out",) if table.dropped else ()
    return NcuPage("details", identity, values, texts, units, labels, _rules(frame[~metric], launch[~metric]), notes)


def _parse(table: TextTable) -> pd.DataFrame:
    header = list(table.header)
    if not table.body.strip():
        empty: pd.DataFrame = pd.DataFrame({h: pd.Series(dtype="object") for h in header})
        return empty
    frame = pd.read_csv(
        BytesIO(table.body),
        header=None,
        names=header,
        index_col=False,
        dtype="category",
        keep_default_na=False,
        na_values=[],
        on_bad_lines="skip",
        encoding_errors="replace",
    )
    number = frame["ID"].astype("object").map(lambda x: str(x).replace(",", "").strip().isdigit())
    kept: pd.DataFrame = frame[number.to_numpy(dtype=bool)].reset_index(drop=True)
    return kept


def _launches(frame: pd.DataFrame) -> Any:
    """The number of the launch, from 0, that each row belongs to: rows of one launch stand together."""
    changed = np.zeros(len(frame), dtype=bool)
    for header in ("ID", "Process ID"):
        if header in frame:
            codes = frame[header].cat.codes.to_numpy() if hasattr(frame[header], "cat") else np.zeros(len(frame))
            changed[1:] |= codes[1:] != codes[:-1]
    return np.cumsum(changed)


def _wide(
    rows: pd.DataFrame, launch: Any, count: int, c_locale: bool, line: int
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, str], dict[str, str]]:
    """One column for each metric, its unit, and its printed label where that differs.

    The first of several equal rows of a launch counts. A label that a later section uses for a quantity in
    another unit than an earlier one did gets a column of its own, named with the section.
    """
    printed = rows["Metric Value"].astype("object").fillna("")
    style = C_LOCALE if c_locale else evidence(str(v) for v in pd.unique(printed))
    if not c_locale:
        check_style(style, f"the table at line {line}")
    numbers, _ = parse_column(printed, style)
    numbers, unit_of = _to_base(numbers, rows["Metric Unit"])
    values: dict[str, Any] = {}
    texts: dict[str, pd.Series[Any]] = {}
    units: dict[str, str] = {}
    labels: dict[str, str] = {}
    for mine in _groups(rows, unit_of):
        where, label, unit = _section(rows, mine[0]), str(rows["Metric Name"].iloc[mine[0]]), unit_of[mine[0]]
        name = metric_name(label, unit)
        back = mine[::-1]
        if np.isnan(numbers[mine]).all() and not _all_missing(printed.iloc[mine]):
            texts.setdefault(name, pd.Series(pd.NA, index=range(count), dtype="string"))
            texts[name].iloc[launch[back]] = printed.iloc[back].astype("string").to_numpy()
            continue
        column = np.full(count, np.nan)
        column[launch[back]] = numbers[back]
        if name in values and units[name] == unit:
            values[name] = np.where(np.isnan(values[name]), column, values[name])
            continue
        key = f"{where}: {label}" if name in values else name
        values[key], units[key] = column, unit
        if key != label:
            labels[key] = label
    index = pd.RangeIndex(count)
    return pd.DataFrame(values, index=index), pd.DataFrame(texts, index=index), units, labels


def _to_base(numbers: Any, printed_units: pd.Series[Any]) -> tuple[Any, Any]:
    """Numbers in base units, and the base unit of each row."""
    codes, names = pd.factorize(printed_units.astype("object").fillna(""))
    bases = [base_unit(str(name)) for name in names]
    for code, base in enumerate(bases):
        if base.factor != 1.0:
            mine = codes == code
            numbers[mine] = scaled(numbers[mine], base.factor)
    return numbers, np.array([base.name for base in bases], dtype=object)[codes]


def _section(rows: pd.DataFrame, at: int) -> str:
    return str(rows["Section Name"].iloc[at]) if "Section Name" in rows else ""


def _groups(rows: pd.DataFrame, unit_of: Any) -> list[Any]:
    """Positions of the rows of each section, metric and unit, in order of first appearance."""
    key = np.zeros(len(rows), dtype=np.int64)
    parts = [rows[h].astype("object") for h in ("Section Name", "Metric Name") if h in rows]
    for part in (*parts, pd.Series(unit_of, dtype="object")):
        codes, names = pd.factorize(part.fillna(""))
        key = key * (len(names) + 1) + codes
    codes, names = pd.factorize(key)
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes, minlength=len(names)))[:-1]) if len(rows) else []


def _all_missing(cells: pd.Series[Any]) -> bool:
    return all(not str(c).strip() or str(c).strip().lower() in ("n/a", "nan", "no data") for c in pd.unique(cells))


def metric_name(label: str, unit: str) -> str:
    """The metric's real name for a printed label (`Duration`, `label (name)`, or already a name)."""
    found = _NAMED.fullmatch(label)
    if found:
        return found["name"]
    return LABELS.get((label, unit), LABELS.get((label, ""), label))


def _rules(rows: pd.DataFrame, launch: Any) -> pd.DataFrame:
    """The rule rows: the tool's own advice for each launch."""
    out = pd.DataFrame({"ordinal": pd.array(launch, dtype="Int64")})
    for header, name in RULES.items():
        present = rows[header].astype("string").reset_index(drop=True) if header in rows else pd.NA
        out[name] = pd.Series(present, index=out.index, dtype="string").replace("", pd.NA)
    out["speedup_pct"] = pd.to_numeric(out["speedup_pct"], errors="coerce").astype("float64")
    kept: pd.DataFrame = out[out["rule"].notna()].reset_index(drop=True)
    return kept
