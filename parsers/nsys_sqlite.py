"""The sqlite export of an Nsight Systems recording, as tables.

`read_nsys` gives GPU work attributed to the ranges its launch was in (rules: `nsys_attribution`,
`nsys_paths`), the ranges, the calls, devices and processes. All times are ns since the recording's
first event (`origin_ns` is that event on nsys's own clock). Sums and step windows are made from the
result by `nsys_windows`.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from kernelroof.models.errors import ReportError
from kernelroof.parsers import nsys_frames as frames
from kernelroof.parsers import nsys_schema as schema
from kernelroof.parsers.nsys_attribution import NO_END, process_of
from kernelroof.parsers.nsys_errors import (
    EXPORT_HINT,
    NODE_TRACE_HINT,
    NoKernelsError,
    importer_missing,
    no_kernels,
    no_ranges,
)
from kernelroof.parsers.nsys_events import Ranges, Work, finished, read_calls, read_ranges, read_work
from kernelroof.parsers.nsys_machine import read_devices, read_diagnostics, read_processes
from kernelroof.parsers.nsys_paths import Paths


@dataclass(frozen=True)
class Nsys:
    """One recording.

    Attributes:
        path, version, schema_version: the file, the nsys that exported it, the format ("" unknown).
        origin_ns: the recording's first event on its own clock; add it to get the file's times.
        work: all GPU work, in the file's order: event (row id in its table), kind (kernel, memcpy,
            memset, graph), process (pid), thread, device, stream, start_ns, time_ns, launch_ns,
            correlation, call (row of `calls`), graph_node, name, bytes, phase, step, module, ranges,
            phase_range and step_range (rows of `ranges`), path (row of `paths`), reason (null, or why no
            range).
        launches: the kernels, see `kernelroof.parsers.schema.LAUNCHES`.
        calls: the calls that launched that work or waited for the GPU: name, process, thread,
            start_ns, end_ns, correlation, waits.
        devices, processes: see `nsys_machine`.
        unattributed: reason, kernels, time_ns; no rows when every kernel is under a range.
        notes: what a reader should know (ranges never closed, graphs recorded as a whole, ...).
        paths: the distinct paths of ranges around work, as a tree.
        raw_ranges: the ranges on the file's own clock; `ranges` is the table made of them.
    """

    path: Path
    version: str
    schema_version: str
    origin_ns: int
    work: pd.DataFrame
    launches: pd.DataFrame
    calls: pd.DataFrame
    devices: pd.DataFrame
    processes: pd.DataFrame
    unattributed: pd.DataFrame
    notes: tuple[str, ...]
    paths: Paths
    raw_ranges: Ranges

    @property
    def copies(self) -> pd.DataFrame:
        """Copies and memsets: the rows of `work` of those kinds."""
        table: pd.DataFrame = self.work[self.work["kind"].isin(["memcpy", "memset"])].reset_index(drop=True)
        return table

    @cached_property
    def ranges(self) -> pd.DataFrame:
        """Every range, in the file's order: name, domain (null: the default one), kind (push/pop or
        start/end), process, thread, start_ns, end_ns (null: never closed), phase, step, module, path
        (its own name last)."""
        return frames.range_frame(self.raw_ranges, self.origin_ns)

    def launches_of(self, process: int) -> pd.DataFrame:
        """The launches of one process (a rank), as `launches`."""
        return frames.launch_table(self.work[self.work["process"] == process])

    def require_ranges(self) -> None:
        """Raise NoRangesError if the recording has no range."""
        if not len(self.raw_ranges.table.start):
            raise no_ranges(str(self.path))


def read_nsys(path: str | Path, *, need_kernels: bool = True) -> Nsys:
    """Read an nsys export (.sqlite, also gzipped), or the one in a folder. The file is not changed.

    Args:
        path: the file; a folder is searched for exactly one `.sqlite`.
        need_kernels: refuse a recording without kernels; false gives empty tables for it.

    Raises:
        NoKernelsError, GraphTraceOnlyError: no CUDA kernels, by why.
        ImporterMissingError: only a `.qdstrm` is there.
        ReportError: not a readable export.
    """
    path = _find(Path(path))
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    if not zipped:
        return _read(path, path, need_kernels)
    with tempfile.TemporaryDirectory(prefix="kernelroof-") as folder:
        plain = Path(folder) / path.stem
        try:
            with gzip.open(path, "rb") as packed, open(plain, "wb") as out:
                shutil.copyfileobj(packed, out)
        except (OSError, EOFError) as error:
            raise ReportError(f"{path} can't be unpacked ({error})", "Unpack it with gunzip.") from error
        return _read(plain, path, need_kernels)


def _find(path: Path) -> Path:
    """The export that a path means."""
    if path.suffix == ".qdstrm":
        raise importer_missing(str(path))
    if path.suffix in (".nsys-rep", ".qdrep"):
        raise ReportError(f"{path} is a report, not an export", EXPORT_HINT)
    if not path.is_dir():
        if not path.is_file():
            raise ReportError(f"{path} does not exist", "Name the .sqlite that nsys export wrote.")
        return path
    found = sorted(path.glob("*.sqlite"))
    if len(found) == 1:
        return found[0]
    if not found and list(path.glob("*.qdstrm")) and not list(path.glob("*.nsys-rep")):
        raise importer_missing(str(path))
    raise ReportError(f"{path} has {len(found) or 'no'} .sqlite files", "Name one file.")


def _read(path: Path, shown: Path, need_kernels: bool) -> Nsys:
    with schema.open_recording(path) as recording:
        recorded = read_work(recording)
        work, unfinished = finished(recorded)
        if need_kernels and (recorded.kind == "kernel").any() and not (work.kind == "kernel").any():
            raise ReportError(
                f"{shown}: not one of its kernels has a start and an end after it", "Record again, and let nsys end."
            )
        if need_kernels and not (work.kind == "kernel").any():
            raise _no_kernels(recording, shown)
        calls = read_calls(recording, process_of(work.global_pid), work.correlation)
        ranges = read_ranges(recording)
        facts = schema.export_facts(recording)
        threads = np.concatenate([calls.thread, ranges.table.thread])
        devices = read_devices(recording, work.global_pid, work.device)
        processes = read_processes(recording, threads, work.global_pid)
        diagnostics = read_diagnostics(recording)
    starts = [a for a in (work.start, calls.start, ranges.table.start) if len(a)]
    origin = min((int(known.min()) for a in starts if len(known := a[a != schema.NULL])), default=0)
    table, paths = frames.work_frame(work, calls, ranges, origin)
    unattributed = frames.unattributed_frame(table)
    return Nsys(
        path=shown,
        version=facts.get("EXPORT_PRODUCT_VERSION", ""),
        schema_version=facts.get("EXPORT_SCHEMA_VERSION", ""),
        origin_ns=origin,
        work=table,
        launches=frames.launch_table(table),
        calls=frames.call_frame(calls, origin),
        devices=devices,
        processes=processes,
        unattributed=unattributed,
        notes=(*_notes(work, ranges, unattributed, unfinished), *diagnostics),
        paths=paths,
        raw_ranges=ranges,
    )


def check_recording(path: Path, *, need_ranges: bool) -> None:
    """Raise what is wrong with an export that should have kernels (and ranges), without reading its events.

    Raises:
        NoKernelsError, GraphTraceOnlyError, NoRangesError: what it lacks.
        ReportError: not a readable export.
    """
    with schema.open_recording(path) as recording:
        if not recording.count(schema.KERNELS):
            raise _no_kernels(recording, path)
        if need_ranges and not recording.count(schema.RANGES):
            raise no_ranges(str(path))


def _no_kernels(recording: schema.Recording, shown: Path) -> NoKernelsError:
    return no_kernels(
        str(shown),
        runtime_calls=recording.count(schema.RUNTIME),
        graphs=recording.count(schema.GRAPHS),
        cuda_tables=any(t.startswith("CUPTI_ACTIVITY_KIND_") for t in recording.columns),
    )


def _notes(work: Work, ranges: Ranges, unattributed: pd.DataFrame, unfinished: int) -> list[str]:
    notes = []
    if unfinished:
        notes.append(f"pieces of GPU work without a start and an end after it, left out: {unfinished:,}")
    if graphs := int((work.kind == "graph").sum()):
        notes.append(f"graph launches recorded as a whole, without kernels: {graphs:,}. {NODE_TRACE_HINT}")
    if unclosed := int((ranges.table.end == NO_END).sum()):
        notes.append(f"ranges never closed: {unclosed:,}; each is taken to last to the end of the recording")
    for reason, kernels, time_ns in unattributed.itertuples(index=False):
        notes.append(f"unattributed kernels: {kernels:,} ({time_ns / 1e6:.3f} ms): {reason}")
    if not len(ranges.table.start):
        notes.append("no NVTX range was recorded")
    return notes
