"""What `kernelroof analyze` was given: every path found out by its content, read by its reader."""

from __future__ import annotations

import re
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
_SUFFIXES = (".ncu-rep", ".sqlite", ".csv", ".json.gz", ".json", ".log", ".parquet", ".nsys-rep", ".qdstrm")
_SHOWN = 200
_OURS = frozenset(
    {"kernels.csv", "counters.csv", "launches.csv", "ops.csv", "modules.csv", "unmatched.csv", "placed_trace.json.gz"}
)
_DERIVED = {".ncu-rep": (".csv",), ".nsys-rep": (".sqlite",), ".qdstrm": (".nsys-rep", ".sqlite")}
"""A file that another of the same stem was exported from is left out: the export says the same."""
_AGAIN = re.compile(r"repeat_\d+\.json\.gz")
"""The further recordings of a run of ours, beside the one that its tables are made of."""


class Timeline(NamedTuple):
    """True durations: `launches` as the table of that name, with `count` for summaries.

    rounds: for each launch how often its phase and step had come before; None where no range tells.
    """

    path: Path
    launches: pd.DataFrame
    gpu: str | None
    notes: tuple[str, ...]
    nsys: Nsys | None
    rounds: pd.Series[int] | None = None


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
    found = [detect(path) for path in _paths(names)]
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
        silicon=tuple(d.path for d in files if d.kind == kinds.PARQUET),
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
        try:
            path.stat()
            out += _inside(path) if path.is_dir() else [path]
        except FileNotFoundError as error:
            what = "is a link that leads nowhere" if path.is_symlink() else "does not exist"
            raise UsageError(f"{path} {what}", "Name files that a profiler wrote, or a folder with them.") from error
        except OSError as error:
            shown = name if len(name) < _SHOWN else f"{name[:_SHOWN]}..."
            raise UsageError(f"{shown} can't be read ({error.strerror})", "Check its name and permissions.") from error
    # The same file under two names (a link) is one.
    return list({path.resolve(): path for path in reversed(out)}.values())[::-1]


def _inside(folder: Path) -> list[Path]:
    """The profilers' files in a folder, without our own tables and without what another was exported from."""
    files = [p for p in sorted(folder.iterdir()) if p.is_file() and p.name not in _OURS]
    if (folder / "trace.json.gz").is_file():
        files = [p for p in files if not _AGAIN.fullmatch(p.name)]
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
            detect(path)
        except ReportError:
            if suffix in (".csv", ".json", ".log"):
                continue  # some other program's table or text
            raise
        out.append(path)
    if not out:
        raise UsageError(f"{folder} holds no file of a profiler", f"Looked for {', '.join(_SUFFIXES)}.")
    return out


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
        from kernelroof.parsers.rounds import kineto_rounds

        kineto = read_kineto(found.path)
        names = {f"cuda:{d.get('id')}": str(d["name"]) for d in kineto.device_properties if d.get("name")}
        gpu, notes = _one_gpu(names[d] for d in kineto.kernels["device"].unique() if d in names)
        table = launches(kineto)
        return Timeline(found.path, table, gpu, notes, None, kineto_rounds(kineto, table))
    from kernelroof.parsers.nsys_sqlite import read_nsys
    from kernelroof.parsers.rounds import nsys_rounds

    nsys = read_nsys(found.path)
    gpu, notes = _one_gpu(nsys.devices["name"].dropna())
    return Timeline(found.path, nsys.launches, gpu, (*nsys.notes, *notes), nsys, nsys_rounds(nsys))


def _one_gpu(names: Iterable[str]) -> tuple[str | None, tuple[str, ...]]:
    """The kind of GPU that a recording used; None, and a note, where it used different ones: one roof is not all's."""
    different = sorted({str(name) for name in names})
    if len(different) < 2:
        return (different[0] if different else None), ()
    return None, (f"recorded on different GPUs ({', '.join(different)}): no roof is drawn unless --gpu names one",)


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
        gpu, notes = _one_gpu(str(d).rsplit("(", 1)[0].strip() for d in table.frame["device_name"].dropna().unique())
        return Timeline(table.path, trace_launches(table), gpu, notes, None)
    frame, rows = table.frame, len(table.frame)
    summary = table.report == "cuda_gpu_kern_sum"
    count = frame["count"] if summary else pd.Series(1, frame.index, dtype="Int64")
    time_ns = (frame["sum_ns"] / count).round().astype("Int64") if summary else frame["time_ns"]
    if (count < 1).fillna(True).any():
        raise ReportError(
            f"{table.path}: a kernel of the {table.report} table has no launches", "Run nsys stats again."
        )
    first = 0 if summary else frame["start_ns"].min()
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
                "shared_bytes": None,
                "ranges": None,
                "time_source": "nsys",
            }
        ),
        LAUNCHES,
        "launches",
    ).assign(count=count)
    said = ("a summary: times are means over the launches of a kernel",) if summary else ()
    return Timeline(table.path, launches, None, said, None)
