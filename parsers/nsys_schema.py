"""The sqlite files of Nsight Systems: opening them read-only, which tables and columns they have.

Exports differ by version: a table without rows may be absent, a later format may carry its version
in the table's name (`NVTX_EVENTS_V2`), columns come and go (`textId`, `graphNodeId`), the export's
own description is in `EXPORT_META_DATA` (old) or `META_DATA_EXPORT` (new). Callers ask for columns
by name and get nulls for those that this file lacks.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from kernelroof.models.errors import ReportError
from kernelroof.parsers.nsys_errors import EXPORT_HINT

Ints: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
RANGES = "NVTX_EVENTS"

NULL = int(np.iinfo(np.int64).min)
"""Stands for SQL's null in the integer arrays of this package; never leaves its tables."""

_ROWS = 1 << 18
_IDS = 500
_SAMPLE = 1000


class Recording(NamedTuple):
    """An open export: `columns` maps every table to its column names."""

    connection: sqlite3.Connection
    path: Path
    columns: dict[str, frozenset[str]]

    def table(self, base: str) -> str | None:
        """The table of that name, or its newest version (`_V2`, ...), or None."""
        found = {}
        for name in self.columns:
            if match := re.fullmatch(rf"{base}(?:_V(\d+))?", name):
                found[int(match.group(1) or 1)] = name
        return found[max(found)] if found else None

    def count(self, base: str) -> int:
        """Number of rows; 0 for a table that is absent."""
        table = self.table(base)
        return int(self.connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]) if table else 0


@contextmanager
def open_recording(path: Path) -> Iterator[Recording]:
    """Open an export for reading; the file is never written, locked or given a journal.

    Raises:
        ReportError: not there, not an sqlite file, damaged, or not an export of nsys.
    """
    if not path.is_file():
        raise ReportError(f"{path} is not a file", "Name the .sqlite that nsys export wrote.")
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as error:
        raise ReportError(f"{path} can't be opened ({error})", "Check its permissions.") from error
    # Names come from C strings in any encoding; one of them must not cost the whole file.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    try:
        tables = [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = {
            name: frozenset(row[1] for row in connection.execute(f"PRAGMA table_info('{name}')"))
            for name in tables
            if "'" not in name
        }
        recording = Recording(connection, path, columns)
        if not looks_like_nsys(tables):
            seen = ", ".join(sorted(tables)[:5]) or "no tables"
            raise ReportError(f"{path} is not an export of nsys (it has {seen})", EXPORT_HINT)
        yield recording
    except sqlite3.DatabaseError as error:
        raise ReportError(f"{path} is not a readable sqlite file ({error})", EXPORT_HINT) from error
    finally:
        connection.close()


def looks_like_nsys(tables: list[str]) -> bool:
    """Whether these are tables of an nsys export."""
    marks = ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_", "TARGET_INFO_", "META_DATA_EXPORT", "EXPORT_META_DATA")
    return "StringIds" in tables and any(name.startswith(marks) for name in tables)


def read_columns(
    recording: Recording,
    base: str,
    names: tuple[str, ...],
    keep: Callable[[dict[str, Ints]], Mask] | None = None,
) -> dict[str, Ints]:
    """Integer columns of a table of events in row order; `rowid` may be one of them.

    A column that the table lacks, like a null, is `NULL`; a column that holds one value throughout is
    not fetched row by row. `keep` chooses rows of each batch, so that memory is that of the rows kept.

    Raises:
        ReportError: a value is not an integer, or an event has no start and end.
    """
    table = recording.table(base)
    present = [name for name in names if table and name in ("rowid", *recording.columns[table])]
    sample = _sample(recording, table, present) if table else []
    if table is None or not sample:
        return {name: np.empty(0, np.int64) for name in names}
    if lacking := {"start", "end"} - set(present):
        raise ReportError(f"{recording.path}: {table} has no column {', '.join(sorted(lacking))}", EXPORT_HINT)
    constant = _constant_columns(recording, table, present, sample)
    fetched = [name for name in present if name not in constant] or ["start"]
    constant |= {name: NULL for name in names if name not in present}
    select = ", ".join(f'ifnull("{name}", {NULL})' for name in fetched)
    cursor = recording.connection.execute(f'SELECT {select} FROM "{table}" ORDER BY rowid')
    batches: list[dict[str, Ints]] = []
    size = _ROWS
    while size == _ROWS:
        try:
            flat = np.fromiter(chain.from_iterable(islice(cursor, _ROWS)), np.int64)
            size = len(flat) // len(fetched)
            batch = {name: np.full(size, value, np.int64) for name, value in constant.items()}
            batch |= {name: flat[i :: len(fetched)] for i, name in enumerate(fetched)}
        except (ValueError, TypeError, OverflowError) as error:
            raise ReportError(f"{recording.path}: {table} holds a value that is not a whole number") from error
        chosen = keep(batch) if keep else slice(None)
        batches.append({name: batch[name][chosen].copy() for name in names})
    return {name: np.concatenate([b[name] for b in batches]) for name in names}


def _sample(recording: Recording, table: str, names: list[str]) -> list[tuple[Any, ...]]:
    """The first rows; a column more keeps them from being empty."""
    select = ", ".join(f'"{name}"' for name in [*names, "rowid"])
    sql = f'SELECT {select} FROM "{table}" ORDER BY rowid LIMIT {_SAMPLE}'
    return recording.connection.execute(sql).fetchall()


def _constant_columns(
    recording: Recording, table: str, names: list[str], sample: list[tuple[Any, ...]]
) -> dict[str, int]:
    """The columns that hold one value in all rows, with that value (`NULL` for null).

    The first rows rule most columns out; one scan proves the rest, going on from every exception.
    """
    alike = {n: v[0] for n, v in zip(names, zip(*sample, strict=True), strict=False) if len(set(v)) == 1}
    select = ", ".join(f'"{name}"' for name in names)
    at = NULL
    while alike:
        test = " OR ".join(f'"{name}" IS NOT ?' for name in alike)
        found = recording.connection.execute(
            f'SELECT rowid, {select} FROM "{table}" WHERE rowid > ? AND ({test}) ORDER BY rowid LIMIT 1',
            (at, *alike.values()),
        ).fetchone()
        if found is None:
            break
        at, row = found[0], dict(zip(names, found[1:], strict=True))
        alike = {name: value for name, value in alike.items() if row[name] == value}
    return {name: NULL if value is None else value for name, value in alike.items()}


def read_strings(recording: Recording, ids: Ints) -> list[str | None]:
    """The strings of `StringIds` with these ids, in their order; None for an id that has none."""
    if "StringIds" not in recording.columns:
        return [None] * len(ids)
    found: dict[int, object] = {}
    wanted = sorted({int(i) for i in ids} - {NULL})
    for at in range(0, len(wanted), _IDS):
        some = wanted[at : at + _IDS]
        marks = ", ".join("?" * len(some))
        found.update(recording.connection.execute(f"SELECT id, value FROM StringIds WHERE id IN ({marks})", some))
    return [text_of(found.get(int(i))) for i in ids]


def text_of(value: object) -> str | None:
    """A cell that should be a text as one: sqlite holds anything in any column."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None if value is None else str(value)


def rows_of(recording: Recording, table: str, *names: str) -> list[dict[str, object]]:
    """All rows of a small table as dicts of these columns, None where it lacks one."""
    have = recording.columns.get(table)
    if have is None:
        return []
    select = ", ".join(f'"{n}"' if n in have else "NULL" for n in names)
    rows = recording.connection.execute(f'SELECT {select} FROM "{table}" ORDER BY rowid')
    return [dict(zip(names, row, strict=True)) for row in rows]


def export_facts(recording: Recording) -> dict[str, str]:
    """What the export says of itself: EXPORT_PRODUCT_VERSION, EXPORT_SCHEMA_VERSION, ..."""
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        rows = rows_of(recording, table, "name", "value")
        if rows:
            return {str(r["name"]): str(r["value"]) for r in rows if r["value"] is not None}
    return {}
