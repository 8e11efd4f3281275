"""Nsight Systems as a subprocess: its command line, a recording, the import, the export.

nsys may leave only a raw stream (.qdstrm) because it does not find its own importer; then the importer that
lies beside it is run here. Its exit status is that of the profiled program, so what happened is read from
what it left and what it printed.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from kernelroof.models.errors import UsageError
from kernelroof.parsers.nsys_errors import NsysError, error_from_output, importer_missing
from kernelroof.parsers.nsys_reports import REPORTS
from kernelroof.profile.runfolder import whole_file
from kernelroof.profile.tool_disk import check_disk
from kernelroof.profile.tool_errors import DiskFullError, NothingRecorded, TargetFailed, ToolFailed, ToolTimeout, ending
from kernelroof.profile.tools import Tool, last_words, run_tool

TRACES = ("cuda", "nvtx")
"""What is recorded by default. `osrt` is left out: on a CPU run it multiplied the events and the time."""

_NEW_NAMES_SINCE = (2023, 1)
_HELPER_TIMEOUT_S = 3600
_REFUSED = re.compile(r"unrecognised option|unrecognized option|Illegal --|ambiguous option|invalid argument", re.I)
_NO_PROGRAM = re.compile(r"Executable not found|is not an executable|No such file or directory: ")
_MADE = re.compile(r"^\s+(/.+\.(?:qdstrm|nsys-rep))\s*$", re.M)


def record_command(
    tool: Tool,
    target: Sequence[str],
    out_stem: Path,
    *,
    capture_range: bool = True,
    traces: Sequence[str] = TRACES,
    extra: Sequence[str] = (),
) -> list[str]:
    """The command line that records `target` into `out_stem`.nsys-rep; an existing report is replaced.

    CPU samples and context switches are off; CUDA graphs are recorded kernel by kernel.

    Args:
        target: the program and its arguments; child processes are recorded too.
        capture_range: record only between cudaProfilerStart and Stop (the program goes on after it);
            False records from the start.
        traces: APIs to record.
        extra: further options of nsys, before the program.
    """
    command = [str(tool.path), "profile", "--force-overwrite", "true", "--output", str(out_stem)]
    command += ["--trace", ",".join(traces), "--sample", "none", "--cpuctxsw", "none", "--stats", "false"]
    if "cuda" in traces:
        command += ["--cuda-graph-trace", "node"]
    if capture_range:
        command += ["--capture-range", "cudaProfilerApi", "--capture-range-end", "stop"]
    return [*command, *extra, *target]


def record(
    tool: Tool,
    target: Sequence[str],
    folder: Path,
    *,
    name: str = "timeline",
    capture_range: bool = True,
    traces: Sequence[str] = TRACES,
    extra: Sequence[str] = (),
    timeout: float | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Path:
    """Run `target` under nsys; leaves `name`.nsys-rep and `name`.nsys.log in `folder`; returns the report.

    Raises:
        TargetFailed: the program ended with an error; the report up to there is kept if there is one.
        NothingRecorded: nsys made no report (the capture range was never opened).
        ImporterMissingError: only a raw stream is there, and no importer beside nsys; it is kept.
        ToolFailed, ToolBroken, ToolTimeout, DiskFullError: see `tool_errors`; what was recorded is kept.
    """
    stem = folder / name
    report, raw, log = (folder / f"{name}.{end}" for end in ("nsys-rep", "qdstrm", "nsys.log"))
    for old in (report, raw):
        old.unlink(missing_ok=True)
    command = record_command(tool, target, stem, capture_range=capture_range, traces=traces, extra=extra)
    stopped: ToolTimeout | None = None
    try:
        status, output = run_tool(command, log=log, timeout=timeout, on_line=on_line)
    except ToolTimeout as error:
        stopped, status = error, 0
        output = log.read_text(encoding="utf-8", errors="replace")
    if not report.exists():
        _make_report(tool, report, raw, output, folder)
    if stopped is not None:
        raise stopped
    if status and report.exists():
        if status < 0:
            raise _nsys_ended(status, log)
        raise TargetFailed(
            f"the profiled program ended with {ending(status)}",
            f"Its output is in {log}; what was recorded until then is kept in {report}.",
        )
    if report.exists():
        return report
    raise _no_report(tool, status, output, capture_range, log)


def import_raw(tool: Tool, raw: Path, report: Path) -> Path:
    """Turn a raw stream (.qdstrm) into a report with the importer that lies beside nsys; the stream stays.

    Raises:
        ImporterMissingError: there is none.
        ToolFailed, DiskFullError: it could not read the stream or write the report.
    """
    importer = find_importer(tool)
    if importer is None:
        raise importer_missing(str(raw))
    with whole_file(report) as temporary:
        status, text = run_tool([str(importer), "-i", str(raw), "-o", str(temporary)], timeout=_HELPER_TIMEOUT_S)
        if status or not temporary.exists():
            check_disk(text, (report.parent,))
            raise ToolFailed(
                f"{importer} could not import {raw} ({last_words(text) or f'status {status}'})",
                "Where it misses a library, install that (libssh for most); a damaged stream can't be imported.",
            )
    return report


def find_importer(tool: Tool) -> Path | None:
    """QdstrmImporter in the host folder beside nsys or beside one of the links that lead to it."""
    for hop in _links(tool.found or tool.path):
        for up in (hop.parent, hop.parent.parent, hop.parent.parent.parent, hop.parent / ".."):
            for folder in (*sorted(up.glob("host-linux-*")), *sorted(up.glob("host/linux-*"))):
                importer = folder / "QdstrmImporter"
                if os.access(importer, os.X_OK):
                    return importer
    return None


def export_sqlite(tool: Tool, report: Path, sqlite: Path) -> Path:
    """Export a report to `sqlite`, replacing it; returns it.

    Raises:
        OldExporterError: a newer nsys wrote the report.
        ToolFailed, ToolTimeout, DiskFullError: the export failed for another reason.
    """
    with whole_file(sqlite) as temporary:
        command = [str(tool.path), "export", "--type", "sqlite", "--force-overwrite", "true"]
        status, text = run_tool([*command, "--output", str(temporary), str(report)], timeout=_HELPER_TIMEOUT_S)
        if status or not temporary.exists():
            check_disk(text, (sqlite.parent,))
            if found := error_from_output(text, str(report)):
                raise found
            raise ToolFailed(
                f"nsys could not export {report} ({last_words(text) or f'status {status}'})",
                "A report that was cut off can't be exported; record again.",
            )
    return sqlite


def stats_csv(tool: Tool, report: Path, report_key: str, out: Path) -> Path:
    """Write one table of `nsys stats` as CSV to `out`; returns it. Nothing is written beside the report.

    Args:
        report: a .nsys-rep, or an .sqlite that was exported from one.
        report_key: the table's newest name, such as cuda_gpu_trace; older versions are asked by theirs.

    Raises:
        UsageError: no table of that name.
        NoReportDataError: the recording has nothing for it.
        OldExporterError, ToolFailed, ToolTimeout, DiskFullError: see `export_sqlite`.
    """
    text = ""
    with tempfile.TemporaryDirectory(prefix="kernelroof-") as folder:
        sqlite = report if report.suffix == ".sqlite" else export_sqlite(tool, report, Path(folder) / "report.sqlite")
        for name in stats_names(tool, report_key):
            command = [str(tool.path), "stats", "--report", name, "--format", "csv", "--output", f"{folder}/table"]
            _, text = run_tool([*command, str(sqlite)], timeout=_HELPER_TIMEOUT_S)
            made = Path(folder) / f"table_{name}.csv"
            if made.exists() and made.stat().st_size:
                with whole_file(out) as temporary:
                    temporary.write_bytes(made.read_bytes())
                return out
            text = text.replace(str(sqlite), report.name)  # a copy that nobody knows
            if "could not be found" not in text:
                break
    check_disk(text, (out.parent,))
    raise error_from_output(text, str(report)) or ToolFailed(
        f"nsys stats made no table {report_key} of {report} ({last_words(text) or 'no output'})"
    )


def stats_names(tool: Tool, report_key: str) -> tuple[str, ...]:
    """Names of a table of `nsys stats`, the one that this version should know first."""
    for report in REPORTS:
        if report_key in report.names:
            return report.names if tool.version >= _NEW_NAMES_SINCE else report.names[::-1]
    known = ", ".join(report.names[0] for report in REPORTS)
    raise UsageError(f"no table of nsys stats is called {report_key}", f"Choose one of {known}.")


def _links(path: Path) -> list[Path]:
    """A path and every path that it leads to, link by link."""
    out = [Path(os.path.abspath(path))]
    for _ in range(16):
        try:
            target = os.readlink(out[-1])
        except OSError:
            break
        out.append(Path(os.path.join(out[-1].parent, target)))
    return [*out, Path(os.path.realpath(out[0]))]


def _make_report(tool: Tool, report: Path, raw: Path, output: str, folder: Path) -> None:
    """Import what was left as a raw stream; where nsys could not write it into `folder`, it says where it is."""
    left = raw if raw.exists() else next((p for m in _MADE.findall(output) if (p := Path(m)).exists()), None)
    if left is None or not left.stat().st_size:
        return
    if left != raw:
        try:
            check_disk("", (folder,))
        except DiskFullError as error:
            raise DiskFullError(f"{error.what}; what was recorded is in {left}", error.hint) from None
    if left.suffix == ".nsys-rep":
        left.replace(report)
        return
    import_raw(tool, left, report)
    left.unlink(missing_ok=True)


def _no_report(tool: Tool, status: int, output: str, capture_range: bool, log: Path) -> Exception:
    """Why nsys left nothing."""
    words = last_words(output) or f"status {status}"
    if _REFUSED.search(output):
        return UsageError(
            f"nsys does not accept its command line ({_first(_REFUSED, output)})", "See nsys profile --help."
        )
    if _NO_PROGRAM.search(output):
        return TargetFailed(f"nsys can't start the program ({_first(_NO_PROGRAM, output)})", "Name it by its path.")
    check_disk(output, (log.parent,))
    found = error_from_output(output, "nsys profile")
    if status < 0:
        return _nsys_ended(status, log)
    if status:
        return TargetFailed(f"the profiled program ended with {ending(status)}, nothing was recorded", f"See {log}.")
    if capture_range:
        return NothingRecorded(
            "nsys recorded nothing: the program never called cudaProfilerStart, or not in a process that it saw",
            "Record from the start instead (no capture range), or see that a GPU is used at all.",
        )
    if isinstance(found, NsysError):
        return found
    return ToolFailed(
        f"nsys {'.'.join(map(str, tool.version[:2]))} left no report ({words})", f"Its output is in {log}."
    )


def _nsys_ended(status: int, log: Path) -> ToolFailed:
    """The error for an nsys that was ended by a signal: its status is else the program's."""
    return ToolFailed(
        f"nsys itself was ended by {ending(status)} before it had recorded all",
        f"Record again (SIGKILL often means that memory ran out); its output is in {log}.",
    )


def _first(pattern: re.Pattern[str], output: str) -> str:
    return next((line.strip() for line in output.splitlines() if pattern.search(line)), "")
