"""The events of an nsys export as arrays: GPU work, the calls behind it, NVTX ranges.

Times are as in the file; nulls are `NULL`. Names are codes into short lists, so that memory is that
of the integers.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.parsers import nsys_schema as schema
from kernelroof.parsers.nsys_attribution import NO_END, RangeTable, pair_codes, process_of
from kernelroof.parsers.nsys_paths import UNNAMED, RangeNames
from kernelroof.parsers.nsys_schema import NULL, Ints, Mask, Recording

PUSH_POP = (59, 70)
START_END = (60, 71)
DOMAIN = 75

_COPY_KINDS = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device", 9: "Host-to-Host", 10: "Peer-to-Peer"}
_SHARED = ("staticSharedMemory", "dynamicSharedMemory")
_TEXTS = 1 << 16
_LONGEST_NS = 1 << 50
"""Thirteen days: no piece of work lasts so long."""


class Work(NamedTuple):
    """GPU work: kernels, copies, memsets, and graphs that were recorded as a whole.

    kind and name are texts; grid and block are "x,y,z" for kernels, else None; shared_bytes is the shared
    memory of a kernel's block; bytes is the size of a copy or memset.
    """

    kind: npt.NDArray[np.object_]
    event: Ints
    start: Ints
    end: Ints
    device: Ints
    stream: Ints
    correlation: Ints
    global_pid: Ints
    graph_node: Ints
    bytes: Ints
    name: npt.NDArray[np.object_]
    grid: npt.NDArray[np.object_]
    block: npt.NDArray[np.object_]
    shared_bytes: Ints


class Calls(NamedTuple):
    """CUDA API calls that launched work or wait for the GPU (`waits`); `names[name]` is the API."""

    start: Ints
    end: Ints
    thread: Ints
    correlation: Ints
    name: Ints
    names: list[str]
    waits: Mask


class Ranges(NamedTuple):
    """NVTX ranges and their names; `domain` is None in the default domain."""

    table: RangeTable
    names: RangeNames
    domain: npt.NDArray[np.object_]


def read_work(recording: Recording) -> Work:
    """All GPU work, kernels first, each kind in row order. A kernel's name is the demangled one."""
    parts = [
        _kernels(recording),
        _other(recording, schema.MEMCPY, "memcpy"),
        _other(recording, schema.MEMSET, "memset"),
        _other(recording, schema.GRAPHS, "graph"),
    ]
    return Work(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def finished(work: Work) -> tuple[Work, int]:
    """The work that has a start and an end after it, and how many pieces have not.

    What was running when the recording stopped may have no end.
    """
    with np.errstate(over="ignore"):
        length = work.end - work.start
    good = (work.start != NULL) & (work.end != NULL) & (length >= 0) & (length < _LONGEST_NS)
    return Work(*(column[good] for column in work)), int((~good).sum())


_COMMON = {
    "event": "rowid",
    "start": "start",
    "end": "end",
    "device": "deviceId",
    "stream": "streamId",
    "correlation": "correlationId",
    "global_pid": "globalPid",
    "graph_node": "graphNodeId",
}


def _common(rows: dict[str, Ints]) -> dict[str, Ints]:
    return {name: rows[column] for name, column in _COMMON.items()}


def _kernels(recording: Recording) -> Work:
    dims = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
    have = recording.columns.get(recording.table(schema.KERNELS) or "", frozenset())
    named = next((n for n in ("demangledName", "shortName", "mangledName") if n in have), "demangledName")
    rows = schema.read_columns(recording, schema.KERNELS, (*_COMMON.values(), named, *dims, *_SHARED))
    name = rows[named]
    size = len(name)
    return Work(
        kind=np.full(size, "kernel", object),
        **_common(rows),
        bytes=np.full(size, NULL),
        name=_strings(recording, name, "(unnamed kernel)"),
        grid=_triples(rows["gridX"], rows["gridY"], rows["gridZ"]),
        block=_triples(rows["blockX"], rows["blockY"], rows["blockZ"]),
        shared_bytes=_sum(rows[_SHARED[0]], rows[_SHARED[1]]),
    )


def _other(recording: Recording, table: str, kind: str) -> Work:
    rows = schema.read_columns(recording, table, (*_COMMON.values(), "bytes", "copyKind"))
    size = len(rows["start"])
    labels = dict(_COPY_KINDS)
    for row in schema.rows_of(recording, "ENUM_CUDA_MEMCPY_OPER", "id", "label"):
        labels[int(str(row["id"]))] = str(row["label"])
    codes, kinds = pd.factorize(rows["copyKind"])
    texts = [f"[CUDA {kind} {labels.get(int(k), f'kind {k}')}]" if k != NULL else f"[CUDA {kind}]" for k in kinds]
    name = np.array([*texts, ""], object)[codes]
    none = np.full(size, None, object)
    return Work(
        kind=np.full(size, kind, object),
        **_common(rows),
        bytes=rows["bytes"],
        name=name,
        grid=none,
        block=none,
        shared_bytes=np.full(size, NULL),
    )


def read_calls(recording: Recording, work_process: Ints, work_correlation: Ints) -> Calls:
    """The calls whose correlation id belongs to that work, and the calls that wait for the GPU.

    The rest (queries, event records, ...), often most of the table, is dropped while reading.
    """
    wanted = pd.unique(work_correlation[work_correlation != NULL])
    wanted.sort()
    waiting = _waiting_names(recording)

    def keep(batch: dict[str, Ints]) -> Mask:
        at = np.searchsorted(wanted, batch["correlationId"])
        at[at == len(wanted)] = 0
        launches = wanted[at] == batch["correlationId"] if len(wanted) else np.zeros(len(at), bool)
        return np.asarray(launches | np.isin(batch["nameId"], waiting))

    columns = ("start", "end", "globalTid", "correlationId", "nameId")
    rows = schema.read_columns(recording, schema.RUNTIME, columns, keep=keep)
    work, calls = pair_codes((work_process, work_correlation), (process_of(rows["globalTid"]), rows["correlationId"]))
    waits = np.isin(rows["nameId"], waiting)
    chosen = np.isin(calls, work) & (rows["correlationId"] != NULL) | waits
    rows = {name: values[chosen] for name, values in rows.items()}
    codes, ids = pd.factorize(rows["nameId"])
    names = [text or "(unnamed call)" for text in schema.read_strings(recording, np.asarray(ids, np.int64))]
    return Calls(
        rows["start"],
        rows["end"],
        rows["globalTid"],
        rows["correlationId"],
        codes.astype(np.int64),
        names,
        waits[chosen],
    )


def _waiting_names(recording: Recording) -> Ints:
    """Ids of the names of calls that return only when the GPU has reached a point."""
    if "StringIds" not in recording.columns:
        return np.empty(0, np.int64)
    found = recording.connection.execute(
        "SELECT id FROM StringIds WHERE value LIKE 'cu%Synchronize%' ORDER BY id"
    ).fetchall()
    return np.array([i for (i,) in found], np.int64)


def read_ranges(recording: Recording) -> Ranges:
    """Push/pop and start/end ranges, in row order; marks and the like are left out."""
    table = recording.table(schema.RANGES)
    columns = ("start", "end", "eventType", "globalTid", "textId", "domainId")
    # Filtered here rather than in SQL: nearly all events are ranges, and a condition costs a third more.
    rows = schema.read_columns(
        recording, schema.RANGES, columns, keep=lambda batch: np.isin(batch["eventType"], (*PUSH_POP, *START_END))
    )
    code, ids = pd.factorize(rows["textId"])
    code = code.astype(np.int64)
    names = [text or UNNAMED for text in schema.read_strings(recording, np.asarray(ids, np.int64))]
    if table and "text" in recording.columns[table]:
        inline, inline_names = _inline_texts(recording, table, len(names))
        if inline is not None:
            code[inline >= 0] = inline[inline >= 0]
            names += inline_names
    domain = rows["domainId"]
    return Ranges(
        RangeTable(
            rows["start"],
            np.where(rows["end"] == NULL, NO_END, rows["end"]),
            rows["globalTid"],
            np.isin(rows["eventType"], START_END),
        ),
        RangeNames(names, code, (domain != 0) & (domain != NULL)),
        _domain_names(recording, table, process_of(rows["globalTid"]), domain),
    )


def _inline_texts(recording: Recording, table: str, base: int) -> tuple[Ints | None, list[str]]:
    """Codes from `base` of the names that ranges carry themselves (-1: not this one), and these names."""
    where = f"eventType IN {(*PUSH_POP, *START_END)}"
    some = f'SELECT 1 FROM "{table}" WHERE text IS NOT NULL AND {where} LIMIT 1'
    if recording.connection.execute(some).fetchone() is None:
        return None, []
    known: dict[str, int] = {}
    codes = []
    cursor = recording.connection.execute(f'SELECT text FROM "{table}" WHERE {where} ORDER BY rowid')
    while batch := [text for (text,) in islice(cursor, _TEXTS)]:
        local, distinct = pd.factorize(np.array(batch, object))
        mapped = [known.setdefault(str(text), base + len(known)) for text in distinct]
        codes.append(np.array([*mapped, -1], np.int64)[local])
    return np.concatenate(codes), list(known)


def _domain_names(recording: Recording, table: str | None, process: Ints, domain: Ints) -> npt.NDArray[np.object_]:
    """Name of each range's domain: None in the default one, `domain N` where it was not recorded."""
    names = np.full(len(domain), None, object)
    foreign = np.flatnonzero((domain != 0) & (domain != NULL))
    if table is None or not len(foreign):
        return names
    have = recording.columns[table]
    text = "text" if "text" in have else "NULL"
    text = f"coalesce({text}, (SELECT value FROM StringIds WHERE id = textId))" if "textId" in have else text
    made = recording.connection.execute(
        f'SELECT globalTid, domainId, {text} FROM "{table}" WHERE eventType = {DOMAIN} ORDER BY rowid'
    )
    known = {(int(tid) & ~0xFFFFFF, number): name for tid, number, name in made if tid is not None}
    code, owners = pd.factorize(process[foreign])
    pairs, distinct = pd.factorize(code.astype(np.int64) << 32 | (domain[foreign] & 0xFFFFFFFF))
    texts = []
    for pair in distinct.tolist():
        owner, number = int(owners[pair >> 32]), pair & 0xFFFFFFFF
        texts.append(str(known.get((owner, number)) or f"domain {number}"))
    names[foreign] = np.array(texts, object)[pairs]
    return names


def _strings(recording: Recording, ids: Ints, missing: str) -> npt.NDArray[np.object_]:
    codes, distinct = pd.factorize(ids)
    found = schema.read_strings(recording, np.asarray(distinct, np.int64))
    return np.array([*(text or missing for text in found), missing], object)[codes]


def _sum(a: Ints, b: Ints) -> Ints:
    """Sums, `NULL` where a part is."""
    null = (a == NULL) | (b == NULL)
    return np.where(null, NULL, np.where(null, 0, a) + np.where(null, 0, b))


def _triples(x: Ints, y: Ints, z: Ints) -> npt.NDArray[np.object_]:
    """Sizes as "x,y,z" texts, None where one is missing."""
    code = np.zeros(len(x), np.int64)
    for values in (x, y, z):
        part, distinct = pd.factorize(values)
        code, _ = pd.factorize(code * max(len(distinct), 1) + part)
        code = code.astype(np.int64)
    first = np.empty(int(code.max(initial=-1)) + 1, np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    texts = [None if NULL in (x[i], y[i], z[i]) else f"{x[i]},{y[i]},{z[i]}" for i in first]
    return np.array([*texts, None], object)[code]
