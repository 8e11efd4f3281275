"""Nsight Compute as a subprocess: its command line, a counting run, the export of its report.

Two counting runs are usual (`ncu_metrics_plan`): "traffic" with caches left alone, "work" with caches
flushed. Nothing is left to a default that changed between versions: cache and clock control, replay mode
and the processes to profile are always named.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kernelroof.models.errors import KernelroofError, UsageError
from kernelroof.parsers.ncu_errors import NcuError, NoKernelsError, ReportReaderError
from kernelroof.parsers.ncu_log import NcuLog, read_log
from kernelroof.profile.runfolder import whole_file
from kernelroof.profile.tool_disk import check_disk
from kernelroof.profile.tool_errors import ToolFailed, ToolTimeout, ending
from kernelroof.profile.tools import Tool, last_words, run_tool

REPLAY_MODES = ("kernel", "application", "range", "app-range")
CACHE_CONTROLS = ("all", "none")
CLOCK_CONTROLS = ("base", "none")
_APP_RANGE_SINCE = (2023, 1)
_EXPORT_TIMEOUT_S = 1800
_SPECIAL = re.compile(r"([\\/\[\],@*])")
_LISTED = re.compile(r"^([a-z]\w*__\w+)\s", re.M)


class Counting(NamedTuple):
    """What one counting run collects, of which launches, and under which conditions.

    metrics, section_set: what to collect; at least one of the two.
    cache_control: "all" flushes the caches before each pass, "none" leaves them.
    clock_control: "base" locks the clocks, "none" leaves them.
    replay: one of `REPLAY_MODES`.
    nvtx_include: range filters, see `push_pop`; any of them may match. Empty: no filter.
    kernel_names: a regular expression that the kernel's demangled name must contain a match of.
    launch_skip, launch_count: of the launches that pass the filters; None: no limit.
    profile_from_start: False waits for cudaProfilerStart.
    """

    metrics: tuple[str, ...] = ()
    section_set: str = ""
    cache_control: str = "all"
    clock_control: str = "base"
    replay: str = "kernel"
    nvtx_include: tuple[str, ...] = ()
    kernel_names: str = ""
    launch_skip: int = 0
    launch_count: int | None = None
    profile_from_start: bool = True


class Counted(NamedTuple):
    """A finished counting run.

    report: the .ncu-rep. log: the tool's own lines (a file). said: what they say. problem: what went wrong
    after something had been recorded (the program failed, was stopped, ...); None where all went well.
    """

    report: Path
    log: Path
    said: NcuLog
    problem: KernelroofError | None

    @property
    def one_pass(self) -> bool | None:
        """Whether every kernel took one pass; None where the log does not say."""
        found = self.said.passes.values()
        return all(n == 1 for n in found) if found else None


def count_command(
    tool: Tool, target: Sequence[str], out_stem: Path, counting: Counting, *, log: Path | None = None
) -> list[str]:
    """The command line that counts `target` into `out_stem`.ncu-rep; an existing report is replaced.

    Args:
        target: the program and its arguments; child processes are profiled too.
        log: for `--log-file`.

    Raises:
        UsageError: a setting that ncu, or this version of it, does not know.
    """
    _check(tool, counting)
    command = [str(tool.path), "--force-overwrite", "--export", str(_report_path(out_stem))]
    if log is not None:
        command += ["--log-file", str(log)]
    command += ["--target-processes", "all"]
    command += ["--cache-control", counting.cache_control, "--clock-control", counting.clock_control]
    command += ["--replay-mode", counting.replay]
    command += ["--profile-from-start", "on" if counting.profile_from_start else "off"]
    if counting.section_set:
        command += ["--set", counting.section_set, "--apply-rules", "off"]
    if counting.metrics:
        command += ["--metrics", ",".join(counting.metrics)]
    command.append("--nvtx")
    for name in counting.nvtx_include:
        command += ["--nvtx-include", name]
    if counting.kernel_names:
        command += ["--kernel-name-base", "demangled", "--kernel-name", f"regex:{counting.kernel_names}"]
    if counting.launch_skip:
        command += ["--launch-skip", str(counting.launch_skip)]
    if counting.launch_count is not None:
        command += ["--launch-count", str(counting.launch_count)]
    return [*command, *target]


def push_pop(*names: str) -> str:
    """A filter for push/pop ranges of the default domain, each somewhere inside the one before it.

    `push_pop("decode", "step3")` is "decode/*/step3/"; a single name gives "decode/". Only kernels launched
    by the thread that pushed the ranges match.
    """
    return "/*/".join(_SPECIAL.sub(r"\\\1", name) for name in names) + "/"


def count(
    tool: Tool,
    target: Sequence[str],
    folder: Path,
    counting: Counting,
    *,
    name: str = "counters",
    timeout: float | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Counted:
    """Run `target` under ncu; leaves `name`.ncu-rep, `name`.ncu.log and `name`.out.txt in `folder`.

    Args:
        timeout: seconds; a report that ncu still wrote when stopped is returned, with the problem.
        on_line: called with each line that the target prints.

    Raises:
        NcuError: where nothing was recorded: what the tool's messages say, by its cause.
        ToolFailed, ToolBroken, ToolTimeout, DiskFullError: see `tool_errors`.
        UsageError: see `count_command`.
    """
    report, log, output = _report_path(folder / name), folder / f"{name}.ncu.log", folder / f"{name}.out.txt"
    command = count_command(tool, target, folder / name, counting, log=log)
    for old in (report, log):
        old.unlink(missing_ok=True)
    stopped: ToolTimeout | None = None
    printed, status = "", 0
    try:
        status, printed = run_tool(command, log=output, timeout=timeout, on_line=on_line)
    except ToolTimeout as error:
        stopped = error
    own = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    # Not all of it is in the log: options are refused before there is one (by 2022.3 without ==ERROR==), and
    # what ncu's part inside the program says comes with the program's output.
    said = read_log(f"{own}\n{printed}", platform.release())
    killed = None
    if status < 0:
        words = f"ncu itself was ended by {ending(status)} before it had counted all"
        killed = ToolFailed(words, f"Count again (SIGKILL often means that memory ran out); its output is in {output}.")
    if report.exists() and report.stat().st_size:
        return Counted(report, log, said, stopped or said.cause or killed)
    check_disk(own + printed, (folder,))
    if stopped is not None:
        raise stopped
    if cause := said.cause or killed:
        raise cause
    if status:
        words = last_words(own) or last_words(printed)
        raise ToolFailed(f"ncu ended with {ending(status)} and left no report ({words})", f"Its lines are in {output}.")
    raise NoKernelsError()


def export_csv(tool: Tool, report: Path, csv: Path) -> Path:
    """Write a report's raw page (base units, one row per kernel) to `csv`; returns it.

    Raises:
        ReportReaderError: this ncu can't read the report (a newer one wrote it, or it is damaged).
        NoKernelsError: the report holds no kernel.
        DiskFullError, OutputError: `csv` can't be written.
    """
    command = [str(tool.path), "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    with whole_file(csv) as temporary:
        status, text = run_tool(command, log=temporary, timeout=_EXPORT_TIMEOUT_S)
        if status or '"Kernel Name"' not in text:
            check_disk(text, (csv.parent,))
            if not status and "Failed" not in text and (cause := read_log(text).cause):
                raise cause
            if not status and not text.strip():
                raise NoKernelsError(f"{report} holds no kernel")
            raise ReportReaderError(
                f"ncu {_short(tool)} can't read {report} ({last_words(text) or 'no output'})",
                "Export it with the version that wrote it or a newer one, or pip install ncu-report.",
            )
    return csv


def export_counted(tool: Tool, counted: Counted, csv: Path) -> Path:
    """`export_csv` of a counting run; where it ended early and left nothing readable, why it did is the error."""
    try:
        return export_csv(tool, counted.report, csv)
    except NcuError:
        if counted.problem is None:
            raise
        raise counted.problem from None


def query_metrics(tool: Tool, chip: str) -> frozenset[str] | None:
    """Base names of the metrics that this ncu lists for a chip (no GPU needed); None: it does not know it."""
    status, text = run_tool([str(tool.path), "--query-metrics", "--chips", chip], timeout=120)
    names = frozenset(_LISTED.findall(text))
    return names if not status and names else None


def passes(log: Path) -> dict[int, int]:
    """Replay passes by launch number, from a log of the tool."""
    return read_log(log.read_text(encoding="utf-8", errors="replace")).passes


def _report_path(stem: Path) -> Path:
    """ncu adds .ncu-rep itself unless it is there; a name with a dot must not lose its end."""
    return stem.with_name(f"{stem.name.removesuffix('.ncu-rep')}.ncu-rep")


def _check(tool: Tool, counting: Counting) -> None:
    if not counting.metrics and not counting.section_set:
        raise UsageError("nothing to count: neither metrics nor a section set")
    for option, value, known in (
        ("cache control", counting.cache_control, CACHE_CONTROLS),
        ("clock control", counting.clock_control, CLOCK_CONTROLS),
        ("replay mode", counting.replay, REPLAY_MODES),
    ):
        if value not in known:
            raise UsageError(f"unknown {option} {value!r}", f"Choose one of {', '.join(known)}.")
    if counting.replay == "app-range" and tool.version < _APP_RANGE_SINCE:
        raise UsageError(f"ncu {_short(tool)} has no replay mode app-range", "Choose another replay mode.")
    if any("," in name for name in counting.metrics):
        raise UsageError("a metric name with a comma")


def _short(tool: Tool) -> str:
    return ".".join(map(str, tool.version[:3]))
