"""What `kernelroof analyze` was given: every path found out by its content, read by its reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kernelroof.models.errors import KernelroofError, ReportError, UsageError
from kernelroof.parsers import detect as kinds
from kernelroof.parsers.detect import Detected, detect
from kernelroof.profile.progress import progress

if TYPE_CHECKING:
    import pandas as pd
    from kernelroof.parsers.ncu import NcuReport
    from kernelroof.parsers.nsys_csv import StatsTable
    from kernelroof.parsers.nsys_sqlite import Nsys

T = TypeVar("T")
PARQUET = "silicon-parquet"
_SUFFIXES = (".ncu-rep", ".sqlite", ".csv", ".json.gz", ".json", ".log", ".parquet", ".nsys-rep", ".qdstrm")
_OURS = frozenset({"kernels.csv", "counters.csv", "launches.csv", "ops.csv", "modules.csv", "unmatched.csv"})
_DERIVED = {".ncu-rep": (".csv",), ".nsys-rep": (".sqlite",), ".qdstrm": (".nsys-rep", ".sqlite")}
"""A file that another of the same stem was exported from is left out: the export says the same."""


class Timeline(NamedTuple):
    """True durations: `launches` as the table of that name, with `count` for summaries."""

    path: Path
    launches: pd.DataFrame
    gpu: str | None
    notes: tuple[str, ...]
    nsys: Nsys | None


class Inputs(NamedTuple):
    """All that was read. `ranges` are the tables of nsys stats that hold ranges instead of kernels."""

    paths: tuple[Path, ...]
    reports: tuple[tuple[Path, NcuReport], ...]
    timelines: tuple[Timeline, ...]
    ranges: tuple[StatsTable, ...]
    silicon: tuple[Path, ...]
    notes: tuple[str, ...]


def read_inputs(names: Sequence[str]) -> Inputs:
    """Read every path; a folder stands for the profilers' files in it.

    Raises:
        UsageError: a path that does not exist.
        ReportError, NcuError, NsysError: a file that can't be read, or that says why it holds nothing.
    """
    found = [_detected(path) for path in _paths(names)]
    logs = [d for d in found if d.kind == kinds.NCU_LOG]
    files = [d for d in found if d.kind != kinds.NCU_LOG]
    notes = []
    for log in logs:
        if not files:
            _read(log, _report)  # raises what the log says
        notes.append(f"{log.path.name}: {_said_by(log)}")
    tables = [t for d in files if d.kind == kinds.NSYS_STATS for t in _read(d, _stats)]
    timelines = [
        _read(d, _timeline)
        for d in files
        if d.kind in (kinds.NSYS_SQLITE, kinds.KINETO, kinds.NSYS_REPORT, kinds.QDSTRM)
    ]
    timelines += [_of_stats(t) for t in tables if t.report in _WITH_KERNELS]
    return Inputs(
        paths=tuple(d.path for d in found),
        reports=tuple((d.path, _read(d, _report)) for d in files if d.kind.startswith("ncu")),
        timelines=tuple(timelines),
        ranges=tuple(t for t in tables if t.report not in _WITH_KERNELS),
        silicon=tuple(d.path for d in files if d.kind == PARQUET),
        notes=tuple(notes),
    )


def _read(found: Detected, reader: Callable[[Detected], T]) -> T:
    """What a reader makes of a file; its errors name the file."""
    try:
        with progress(f"reading {found.path.name}"):
            return reader(found)
    except KernelroofError as error:
        if found.path.name not in error.what:
            error.locate(str(found.path))
        raise


def _paths(names: Iterable[str]) -> list[Path]:
    out: list[Path] = []
    for name in names:
        path = Path(name)
        if not path.exists():
            raise UsageError(f"{path} does not exist", "Name files that a profiler wrote, or a folder with them.")
        out += _inside(path) if path.is_dir() else [path]
    return list(dict.fromkeys(out))


def _inside(folder: Path) -> list[Path]:
    """The profilers' files in a folder, without our own tables and without what another was exported from."""
    files = [p for p in sorted(folder.iterdir()) if p.is_file() and p.name not in _OURS]
    named = {p.name for p in files}
    out = []
    for path in files:
        suffix = next((s for s in _SUFFIXES if path.name.endswith(s)), None)
        if suffix is None or path.name.startswith("."):
            continue
        stem = path.name.removesuffix(suffix)
        if any(stem + other in named for other in _DERIVED.get(suffix, ())):
            continue
        try:
            _detected(path)
        except ReportError:
            if suffix in (".csv", ".json", ".log"):
                continue  # some other program's table or text
            raise
        out.append(path)
    if not out:
        raise UsageError(f"{folder} holds no file of a profiler", f"Looked for {', '.join(_SUFFIXES)}.")
    return out


def _detected(path: Path) -> Detected:
    with path.open("rb") as file:
        if file.read(4) == b"PAR1":
            return Detected(path, PARQUET)
    return detect(path)


def _report(found: Detected) -> NcuReport:
    from kernelroof.parsers.ncu import read_ncu

    return read_ncu(found.path)


def _said_by(found: Detected) -> str:
    try:
        _report(found)
    except KernelroofError as error:
        return str(error)
    return "a log without a table"


def _timeline(found: Detected) -> Timeline:
    if found.kind == kinds.KINETO:
        from kernelroof.parsers.kineto import launches, read_kineto

        kineto = read_kineto(found.path)
        used = kineto.kernels["device"].value_counts()
        number = str(used.index[0]).removeprefix("cuda:") if len(used) else ""
        names = {str(d.get("id")): d.get("name") for d in kineto.device_properties}
        return Timeline(found.path, launches(kineto), names.get(number), (), None)
    from kernelroof.parsers.nsys_sqlite import read_nsys

    nsys = read_nsys(found.path)
    named = nsys.devices["name"].dropna()
    return Timeline(found.path, nsys.launches, str(named.iloc[0]) if len(named) else None, nsys.notes, nsys)


_WITH_KERNELS = ("cuda_gpu_trace", "cuda_gpu_kern_sum", "cuda_kern_exec_trace")


def _stats(found: Detected) -> list[StatsTable]:
    from kernelroof.parsers.nsys_csv import read_all_stats

    return read_all_stats(found.path)


def _of_stats(table: StatsTable) -> Timeline:
    """Launches out of a table of nsys stats; in a summary one row stands for many."""
    import pandas as pd
    from kernelroof.parsers.nsys_csv import trace_launches
    from kernelroof.parsers.schema import LAUNCHES, UNATTRIBUTED, conform

    if table.report == "cuda_gpu_trace":
        devices = table.frame["device_name"].dropna()
        gpu = str(devices.iloc[0]).rsplit("(", 1)[0].strip() if len(devices) else None
        return Timeline(table.path, trace_launches(table), gpu, (), None)
    frame, rows = table.frame, len(table.frame)
    summary = table.report == "cuda_gpu_kern_sum"
    count = frame["count"] if summary else pd.Series(1, frame.index, dtype="Int64")
    time_ns = (frame["sum_ns"] / count).round().astype("Int64") if summary else frame["time_ns"]
    first = 0 if summary else int(frame["start_ns"].min())
    launches = conform(
        pd.DataFrame(
            {
                "phase": UNATTRIBUTED,
                "step": None,
                "module": UNATTRIBUTED,
                "kernel": frame["kernel"],
                "op": None,
                "ordinal": range(rows),
                "event": range(rows),
                "thread": None if summary else frame["thread"],
                "stream": None,
                "device": "cuda" if summary else "cuda:" + frame["device"].astype("string"),
                "start_ns": 0 if summary else frame["start_ns"] - first,
                "time_ns": time_ns,
                "launch_ns": None if summary else frame["launch_ns"] - first,
                "grid": frame["grid"],
                "block": frame["block"],
                "ranges": None,
                "time_source": "nsys",
            }
        ),
        LAUNCHES,
        "launches",
    ).assign(count=count)
    said = ("a summary: times are means over the launches of a kernel",) if summary else ()
    return Timeline(table.path, launches, None, said, None)
