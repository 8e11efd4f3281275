"""Nsight Compute's own lines (`==PROF==`, `==WARNING==`, `==ERROR==`) read for what they say.

Its exit status says little, its messages do. They may stand on the same line as the program's output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from kernelroof.parsers import ncu_errors as errors
from kernelroof.parsers.ncu_errors import NcuError

_LINE = re.compile(r"==(PROF|WARNING|ERROR)== ?([^\r\n]*)")
_PROFILING = re.compile(r'Profiling "(?P<name>.*)"(?: - (?P<index>\d+))?(?: \(\d+/\d+\))?: (?P<progress>.*)')
_PASSES = re.compile(r"(\d+) pass(?:es)?\b")
_REPORT = re.compile(r"Report: (.+?)\s*$")
_EXIT = re.compile(r"returned an error code \((-?\d+)\)")
_METRICS = re.compile(r"the following \d+ metrics?: (.+)")
_METRIC = re.compile(r"[a-zA-Z]\w*__[\w.]+")
_WSL = re.compile(r"microsoft|\bWSL2?\b", re.I)
_KILL_SIGNALS = (9, 15)

_CAUSES: tuple[tuple[re.Pattern[str], type[NcuError]], ...] = tuple(
    (re.compile(pattern, re.I), kind)
    for pattern, kind in (
        (r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance", errors.CounterPermissionError),
        (r"driver resource was unavailable", errors.CountersBusyError),
        (
            r"driver is not compatible|failed to connect to the CUDA driver|LibraryNotLoaded|stub libcuda",
            errors.DriverError,
        ),
        (r"Cannot lock GPU clock|lock (?:the )?clocks? .*(?:fail|denied)", errors.ClockLockError),
        (r"Profiling is not supported on device|No supported GPU|not supported on this (?:device|gpu)",
         errors.UnsupportedDeviceError),
        (r"unrecognised option|argument for option .* is invalid|cannot be specified more than once|"
         r"did not match any section|ambiguous option|Invalid regex provided", errors.OptionError),
        (r"Failed to find metric|Failed to access the following|Invalid metric", errors.UnknownMetricError),
        (r"Failed to prepare kernel|Unknown Error on device|Failed to profile kernel|LaunchFailed",
         errors.ProfilingFailedError),
        (r"No metrics to collect", errors.NoMetricsError),
        (r"No ranges were profiled", errors.NoRangesError),
        (r"No kernels were profiled", errors.NoKernelsError),
    )
)  # fmt: skip
"""Most telling first: where several are found, an earlier one is the cause and a later one follows from it."""

_AFTER_EXIT = (errors.NoMetricsError, errors.NoRangesError, errors.NoKernelsError)


@dataclass(frozen=True)
class LoggedLaunch:
    """One `==PROF== Profiling` line; `name` may be cut by the tool, `index` is the ID of the exported row."""

    name: str
    index: int | None
    passes: int | None
    complete: bool


@dataclass(frozen=True)
class NcuLog:
    """What a log says.

    `problems` has the root cause first. `unavailable` are metrics that the tool could not access.
    `exit_code` is the profiled program's, where the tool reports one.
    """

    launches: tuple[LoggedLaunch, ...] = ()
    problems: tuple[NcuError, ...] = ()
    warnings: tuple[str, ...] = ()
    unavailable: tuple[str, ...] = ()
    reports: tuple[str, ...] = ()
    exit_code: int | None = None
    tool_lines: int = 0
    passes: dict[int, int] = field(default_factory=dict)

    @property
    def cause(self) -> NcuError | None:
        """The most telling problem; None where the log has none."""
        return self.problems[0] if self.problems else None


def read_log(text: str, kernel_release: str = "") -> NcuLog:
    """Read a log.

    Args:
        text: the log, or a whole program output with the tool's lines somewhere in it.
        kernel_release: `uname -r` of the machine that ran it, to know WSL by; the text itself is searched too.
    """
    lines = [(m[1], m[2].strip()) for m in _LINE.finditer(text)]
    messages = [message for kind, message in lines if kind != "PROF"]
    said = [message for _, message in lines if not message.startswith('Profiling "')]
    codes = [int(m[1]) for message in messages if (m := _EXIT.search(message))]
    exit_code = next((c for c in codes if c), None)
    launches = tuple(launch for _, message in lines if (launch := _launch(message)) is not None)
    wsl = bool(_WSL.search(kernel_release) or re.search(r"microsoft-standard|-WSL2", text, re.I))
    errors_said = [message for kind, message in lines if kind == "ERROR"]
    problems = _problems(said if lines else text.splitlines(), errors_said, exit_code, launches, wsl)
    return NcuLog(
        launches=launches,
        problems=tuple(problems),
        warnings=tuple(message for kind, message in lines if kind == "WARNING"),
        unavailable=tuple(_unavailable(messages)),
        reports=tuple(m[1] for message in said if (m := _REPORT.match(message))),
        exit_code=exit_code,
        tool_lines=len(lines),
        passes={x.index: x.passes for x in launches if x.index is not None and x.passes is not None and x.complete},
    )


def _launch(message: str) -> LoggedLaunch | None:
    found = _PROFILING.match(message)
    if not found:
        return None
    passes = _PASSES.search(found["progress"])
    index = int(found["index"]) if found["index"] else None
    return LoggedLaunch(found["name"], index, int(passes[1]) if passes else None, "100%" in found["progress"])


def _unavailable(messages: Iterable[str]) -> list[str]:
    out: dict[str, None] = {}
    for message in messages:
        if found := _METRICS.search(message):
            out.update(dict.fromkeys(name.rstrip(".") for name in _METRIC.findall(found[1])))
    return list(out)


def _problems(
    said: list[str], errors_said: list[str], exit_code: int | None, launches: tuple[LoggedLaunch, ...], wsl: bool
) -> list[NcuError]:
    """Every problem that the lines speak of, causes first; an error line of another kind stands for itself."""
    out: list[NcuError] = []
    for pattern, kind in _CAUSES:
        evidence = [line for line in said if pattern.search(line)]
        if not evidence:
            continue
        if kind in _AFTER_EXIT and exit_code is not None:
            out.extend(_exits(exit_code, launches, said))
            exit_code = None
        hint = errors.CounterPermissionError.wsl_hint if wsl and kind is errors.CounterPermissionError else ""
        out.append(kind(_sentence(kind, evidence), hint, evidence))
    if exit_code is not None:
        out.extend(_exits(exit_code, launches, said))
    if not out and errors_said:
        out.append(NcuError(f"Nsight Compute reports an error: {errors_said[0].rstrip('.')}", evidence=errors_said))
    return out


def _sentence(kind: type[NcuError], evidence: list[str]) -> str:
    if kind in (errors.OptionError, errors.UnknownMetricError, errors.ProfilingFailedError, errors.NoMetricsError):
        return f"{kind.default_what} ({evidence[0].rstrip('.')})"
    return ""


def _exits(code: int, launches: tuple[LoggedLaunch, ...], said: list[str]) -> list[NcuError]:
    """What the program's own exit code means: ended in the middle of a replay, or failed by itself."""
    evidence = [line for line in said if _EXIT.search(line)]
    cut = [x for x in launches if not x.complete]
    if cut and code in _KILL_SIGNALS:
        done = sum(x.complete for x in launches)
        return [
            errors.ReplayInterruptedError(
                f"The profiled program was ended by signal {code} while kernel {cut[-1].name} was replayed; "
                f"{done} of the kernels in this log are complete",
                evidence=evidence,
            )
        ]
    return [errors.ProgramFailedError(f"The profiled program ended with error code {code}", evidence=evidence)]
