"""The CSV tables of `nsys stats`, old names and new.

Columns are found by their header, units are read from it (`Duration (ms)`), `None` and empty cells are
null. What else the command printed (progress, SKIPPED lines, several reports in one file) is told
apart. Times become ns, sizes bytes, rates bytes per second.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from kernelroof.models.errors import ReportError
from kernelroof.parsers.csv_text import read_bytes
from kernelroof.parsers.nsys_errors import error_from_output
from kernelroof.parsers.nsys_reports import REPORTS, Report, identify, next_header, split_unit
from kernelroof.parsers.schema import LAUNCHES, UNATTRIBUTED, conform

_END = re.compile(r"^(?:\s*$|Processing \[|SKIPPED|Generating |Using |NOTICE|WARNING|ERROR)", re.MULTILINE)
_TIME = {"": 1, "ns": 1, "nsec": 1, "us": 10**3, "usec": 10**3, "μs": 10**3, "ms": 10**6, "msec": 10**6}
_TIME |= {"s": 10**9, "sec": 10**9}
_SIZE = {f"{prefix}B": 1000**power for power, prefix in enumerate(("", "K", "M", "G", "T"))}
_SIZE |= {f"{prefix}iB": 1024**power for power, prefix in enumerate(("K", "M", "G", "T"), start=1)}
_MISSING = ["", "None"]
_AGAIN = "Run nsys stats again."


@dataclass(frozen=True)
class StatsTable:
    """One report: its newest name, its rows, and what its printing lost.

    frame: the columns of the report's `Report.fields`, nulls where a cell or column is missing.
    rounded: columns that were printed in another unit, so that digits may be missing.
    """

    path: Path
    report: str
    frame: pd.DataFrame
    rounded: tuple[str, ...]


def read_stats(path: str | Path, report: str | None = None) -> StatsTable:
    """The table in a file, by any of its report's names if the file has several.

    Raises:
        NoReportDataError: nsys said SKIPPED.
        ReportError: no such table, or more than one and none was named.
    """
    tables = read_all_stats(path)
    names = next((r.names for r in REPORTS if report in r.names), (report,))
    found = [table for table in tables if report is None or table.report in names]
    if len(found) == 1:
        return found[0]
    have = ", ".join(table.report for table in tables)
    if not found:
        raise ReportError(f"{path} has no {report} table (it has {have})", f"Run nsys stats --report {report}.")
    raise ReportError(f"{path} has {len(found)} tables ({have})", "Name one report, or give each its own file.")


def read_all_stats(path: str | Path) -> list[StatsTable]:
    """Every known report in a file, in order.

    Raises:
        NoReportDataError, StaleExportError, ...: what nsys said instead of a table.
        ReportError: no table of a report that this module knows, or a damaged one.
    """
    path = Path(path)
    text = read_bytes(path).decode("utf-8", "replace").replace("\r\n", "\n")
    tables = [_read(path, report, header, body) for report, header, body in _blocks(text)]
    if tables:
        return tables
    if problem := error_from_output(text, str(path)):
        raise problem
    first = next((line for line in text.splitlines() if line.strip()), "nothing")
    known = ", ".join(report.names[0] for report in REPORTS)
    raise ReportError(f"{path} has no table of nsys stats (it begins with {first[:80]!r})", f"Known reports: {known}.")


def trace_launches(table: StatsTable) -> pd.DataFrame:
    """The kernels of a cuda_gpu_trace as LAUNCHES; nothing in it says which range launched them."""
    if table.report != "cuda_gpu_trace":
        raise ReportError(f"{table.path} is {table.report}, not cuda_gpu_trace", "Name a trace, not a summary.")
    frame = table.frame[table.frame["grid_x"].notna()].reset_index(drop=True)
    axes = [[frame[f"{name}_{axis}"].astype("string") for axis in "xyz"] for name in ("grid", "block")]
    grid, block = (x + "," + y + "," + z for x, y, z in axes)
    device = frame["device_name"].str.extract(r"\((\d+)\)\s*$")[0]
    launches = frame.assign(
        phase=UNATTRIBUTED,
        step=None,
        module=UNATTRIBUTED,
        kernel=frame["name"],
        op=None,
        ordinal=np.arange(len(frame)),
        event=np.arange(len(frame)),
        thread=None,
        device=("cuda:" + device).fillna("cuda"),
        start_ns=frame["start_ns"] - table.frame["start_ns"].min(),
        launch_ns=None,
        grid=grid,
        block=block,
        shared_bytes=None,  # printed in MB with three decimals
        ranges=None,
        time_source="nsys",
    )
    return conform(launches, LAUNCHES, "launches")


def _blocks(text: str) -> Iterator[tuple[Report, list[str], str]]:
    """The known tables in a text: report, header cells, rows."""
    at = 0
    while (start := next_header(text, at)) >= 0:
        line_end = text.find("\n", start)
        line_end = len(text) if line_end < 0 else line_end
        header = next(csv.reader([text[start:line_end]]), [])
        at = min(line_end + 1, len(text))
        report = identify(header)
        if report is None:
            continue
        stop = _END.search(text, at)
        body = text[at : stop.start() if stop else len(text)]
        at += len(body)
        yield report, header, body


def _read(path: Path, report: Report, header: list[str], body: str) -> StatsTable:
    cells = _cells(path, report, header, body)
    where = {split_unit(cell)[0]: (i, split_unit(cell)[1]) for i, cell in enumerate(header)}
    columns, rounded = {}, []
    for title, field in report.fields.items():
        if title not in where:
            if not field.optional:
                raise ReportError(f"{path}: the {report.names[0]} table lacks {title}", _AGAIN)
            columns[field.name] = pd.Series([None] * len(cells)).astype(_DTYPES[field.kind])
            continue
        position, unit = where[title]
        try:
            columns[field.name], factor = _convert(cells[position], field.kind, unit)
        except (ValueError, TypeError, OverflowError, KeyError) as error:
            raise ReportError(f"{path}: column {title} of {report.names[0]}: {error}", _AGAIN) from error
        if factor != 1:
            rounded.append(field.name)
    return StatsTable(path, report.names[0], pd.DataFrame(columns), tuple(rounded))


def _cells(path: Path, report: Report, header: list[str], body: str) -> pd.DataFrame:
    """The rows as texts, nulls where nsys printed nothing."""
    columns = range(len(header))
    if not body.strip():
        table: pd.DataFrame = pd.DataFrame(columns=columns, dtype=str)
        return table
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            cells = pd.read_csv(
                io.StringIO(body),
                header=None,
                names=columns,
                dtype=str,
                keep_default_na=False,
                na_values=_MISSING,
                index_col=False,
            )
    except (ValueError, pd.errors.ParserWarning) as error:
        raise ReportError(f"{path}: the {report.names[0]} table is damaged ({error})", _AGAIN) from error
    named = split_unit(header[-1])[0] in ("Name", "Kernel Name")
    if named and (cut := cells[cells[len(header) - 1].isna()].index).size:
        raise ReportError(f"{path}: row {cut[0] + 1} of the {report.names[0]} table is cut off", _AGAIN)
    return cells


_DTYPES: dict[str, Any] = {
    "time": "Int64",
    "count": "Int64",
    "bytes": "Float64",
    "mean": "Float64",
    "number": "Float64",
    "text": "string",
    "triple": "string",
}


def _convert(cells: pd.Series[str], kind: str, unit: str) -> tuple[pd.Series[Any], int]:
    """Cells as a column, and the factor that their unit needed.

    Kinds: time and mean (ns; a mean has decimals), count, bytes (also bytes per second), number, text,
    triple ("1024    1   40" to "1024,1,40").
    """
    if kind == "triple":
        cells = cells.astype("string").str.split().str.join(",")
    if kind in ("text", "triple"):
        return cells.astype(_DTYPES[kind]), 1
    factor = 1
    if kind in ("time", "mean"):
        factor = _TIME[unit]
    elif kind == "bytes":
        factor = _SIZE[re.sub(r"(/s|ps)$", "", unit)]
    numbers = pd.to_numeric(cells)
    if factor != 1:
        numbers = numbers.astype("Float64") * factor
        numbers = numbers.round() if kind == "time" else numbers
    return numbers.astype(_DTYPES[kind]), factor
