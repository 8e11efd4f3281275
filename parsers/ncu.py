"""One entry for everything that Nsight Compute writes: `read_ncu`.

What kind of file it is, is found from its content: a report, a raw or a details page (in whatever log), or
only a log, which is turned into the error that it speaks of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd
from kernelroof.parsers import csv_text, ncu_errors
from kernelroof.parsers.ncu_details import is_details, read_details
from kernelroof.parsers.ncu_log import NcuLog, read_log
from kernelroof.parsers.ncu_metrics import counters
from kernelroof.parsers.ncu_page import NcuPage
from kernelroof.parsers.ncu_raw import is_raw, join_pages, read_raw
from kernelroof.parsers.ncu_rep import is_report, read_rep

_HEADER = ("ID", "Kernel Name")
_SUMMARY = ("Invocations", "Kernel Name")
_NOT_METRICS = ("regex:", "group:", "breakdown:", "pmsampling:", "section:", "smspcsamp:")


@dataclass(frozen=True)
class Absent:
    """A metric that was asked for and did not come back."""

    metric: str
    reason: str


@dataclass(frozen=True)
class NcuReport:
    """One export, read.

    Attributes:
        source: file name, or "text".
        page: "raw", "details" or "report".
        identity: what is known of each launch (name, grid, process, ranges, ...).
        metrics: every numeric metric by name in base units, same rows.
        texts: the metrics that are text, same rows.
        units: base unit of each column of `metrics`.
        labels: printed name of each metric that was printed under another.
        rules: the tool's own advice (`ordinal`, `section`, `rule`, `kind`, `description`, speedup).
        log: the tool's own lines around the table; its problems did not keep the table from being read.
        absent: what was asked for and is not there.
        notes: what else was seen and left out.
    """

    source: str
    page: str
    identity: pd.DataFrame
    metrics: pd.DataFrame
    texts: pd.DataFrame
    units: dict[str, str]
    labels: dict[str, str]
    rules: pd.DataFrame
    log: NcuLog
    absent: tuple[Absent, ...]
    notes: tuple[str, ...]

    @cached_property
    def counters(self) -> pd.DataFrame:
        """The `counters` table (`kernelroof.parsers.schema.COUNTERS`), made when first asked for."""
        page = NcuPage(self.page, self.identity, self.metrics, self.texts, self.units, self.labels)
        return counters(page, self.log.passes)


def read_ncu(
    source: str | Path | bytes,
    *,
    asked: Sequence[str] = (),
    version: str = "",
    own_run: bool = False,
    kernel_release: str = "",
) -> NcuReport:
    """Read an export of Nsight Compute.

    Args:
        source: a path, or the text itself (bytes, or a str with a line break).
        asked: metric names that were asked for; what did not come back is in `absent`.
        version: version of the ncu that counted, for the reasons in `absent`.
        own_run: the file was written by this tool, so with LC_ALL=C; no number is then ambiguous.
        kernel_release: `uname -r` of the machine that ran it, to tell WSL by.

    Raises:
        NcuError: one of its kinds: what the log says went wrong where there is no table, an ambiguous
            number, a page without rows for kernels, a report that can't be read.
    """
    name, data, path = _load(source)
    if is_report(data):
        if path is None:
            raise ncu_errors.ReportReaderError("A report can be read from a file only", "Give its path.")
        return _report(name, read_rep(path), NcuLog(), asked, version)
    found = csv_text.find_tables(data, _HEADER)
    log = read_log(found.noise, kernel_release)
    pages = [
        read_raw(t, own_run) if is_raw(t.header) else read_details(t, own_run)
        for t in found.tables
        if is_raw(t.header) or is_details(t.header)
    ]
    pages = [p for p in pages if p.rows]
    if not pages:
        raise _no_table(name, data, log)
    kinds = {p.kind for p in pages}
    kept = [p for p in pages if p.kind == pages[0].kind]
    page = join_pages(kept)
    notes = ("the file holds both pages; only the first kind was read",) if len(kinds) > 1 else ()
    return _report(name, page, log, asked, version, notes)


def _load(source: str | Path | bytes) -> tuple[str, bytes, Path | None]:
    if isinstance(source, bytes):
        return "text", csv_text.normalise(source), None
    if isinstance(source, str) and ("\n" in source or not source):
        return "text", csv_text.normalise(source.encode()), None
    path = Path(source)
    return path.name, csv_text.read_bytes(path), path


def _report(
    name: str, page: NcuPage, log: NcuLog, asked: Sequence[str], version: str, notes: tuple[str, ...] = ()
) -> NcuReport:
    return NcuReport(
        source=name,
        page=page.kind,
        identity=page.identity,
        metrics=page.values,
        texts=page.texts,
        units=page.units,
        labels=page.labels,
        rules=page.rules,
        log=log,
        absent=tuple(_absent(page, log, asked, version)),
        notes=(*page.notes, *notes),
    )


def _absent(page: NcuPage, log: NcuLog, asked: Sequence[str], version: str) -> list[Absent]:
    """What was asked for and has no value in any row."""
    name = (
        page.texts["device__attribute_display_name"].iloc[0]
        if "device__attribute_display_name" in page.texts
        else pd.NA
    )
    place = [str(v) for v in (name, page.identity["cc"].iloc[0]) if v is not pd.NA]
    where = f"on {', CC '.join(place) if len(place) == 2 else 'this GPU'}"
    tool = f"ncu {version}" if version else "this ncu"
    out = []
    for metric in dict.fromkeys(a.strip() for a in asked):
        if metric.startswith(_NOT_METRICS) or not metric:
            continue
        has = metric in page.texts or (metric in page.values and bool(page.values[metric].notna().any()))
        if has:
            continue
        how = "refused by the tool" if metric in log.unavailable else "not collected"
        if metric in page.values:
            how = "without a value in every row"
        out.append(Absent(metric, f"{metric}: {how} {where} by {tool}"))
    return out


def _no_table(name: str, data: bytes, log: NcuLog) -> ncu_errors.NcuError:
    """The error for a file without a table: what its log says, else what kind of file it seems to be."""
    if log.cause is not None:
        return log.cause
    if csv_text.find_tables(data, _SUMMARY).tables:
        return ncu_errors.WrongPageError(f"{name} is a summary over kernels")
    if csv_text.find_tables(data, _HEADER).tables:
        return ncu_errors.NoKernelsError(f"{name} holds a header and no kernels")
    if log.reports:
        return ncu_errors.NoTableError(
            f"{name} is the log of a run that wrote {log.reports[-1]}", "Read that report, or export it as CSV."
        )
    if log.tool_lines:
        return ncu_errors.NoTableError(f"{name} is a log of Nsight Compute without a table or a report")
    return ncu_errors.NoTableError(f"{name} holds no Nsight Compute table")
