"""The driver under nsys and ncu: bare times, the timeline, and the counters of chosen launches.

Every function starts the driver as a program of its own, so that a profiler sees nothing but the workload
and no second copy of the model fills the GPU's memory.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.parsers.ncu_errors import ClockLockError, UnknownMetricError
from kernelroof.profile import ncu, nsys
from kernelroof.profile.backends import Gpu
from kernelroof.profile.count_options import CountOptions
from kernelroof.profile.counted_pass import write_plan
from kernelroof.profile.ncu_metrics_plan import chip_of, plan
from kernelroof.profile.runfolder import fingerprint, read_json, write_json
from kernelroof.profile.tool_errors import TargetFailed
from kernelroof.profile.tools import Tool, find_tool, run_tool
from kernelroof.profile.window import Window

if TYPE_CHECKING:
    import pandas as pd

TRACES = ("cuda", "nvtx")
TRAFFIC_COLUMNS = (
    *("dram_read_bytes", "dram_write_bytes", "dram_bytes", "dram_pct", "ncu_time_ns", "sm_clock_hz"),
    *("peak_dram_byte_s", "passes", "caveat"),
)
"""What the traffic run is asked for, and the work run only where the traffic run has nothing."""


class Purpose(NamedTuple):
    """One counting run: what it is for, what it asks for, and how caches are kept."""

    name: str
    metrics: tuple[str, ...]
    section_set: str
    cache_control: str
    lacking: dict[str, str]


def driver_command(spec: Path, *more: str) -> list[str]:
    """The command that runs the driver on a spec file."""
    return [sys.executable, "-m", "kernelroof.profile.driver", "--spec", str(spec), *more]


def free_gpu_memory() -> None:
    """Give back what torch still holds on the GPU in this process: the driver's process needs it."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def bare_run(folder: Path, spec: Path, out: Path) -> None:
    """Time bare passes in a process of their own; writes `out` (the content of bare.json).

    Raises:
        TargetFailed: the driver ended with an error; the message is its own.
    """
    free_gpu_memory()
    done = run_tool(driver_command(spec, "--mode", "bare", "--out", str(out)), log=folder / "bare.log")
    if done.returncode or not out.exists():
        said = [line for line in done.output.splitlines() if line.strip()]
        raise TargetFailed(
            f"the driver ended with status {done.returncode}: {said[-1] if said else 'no output'}",
            f"Its output is in {folder / 'bare.log'}.",
        )


def record_timeline(folder: Path, spec: Path) -> list[str]:
    """Record one pass under nsys, only while the driver's capture is open; returns the command.

    Leaves timeline.nsys-rep, timeline.nsys.log and timeline.sqlite.

    Raises:
        ToolError, NsysError: see `kernelroof.profile.nsys`; also where the recording has no kernels or no ranges.
        ReportError: the export can't be read.
    """
    from kernelroof.parsers.nsys_sqlite import check_recording

    tool = find_tool("nsys")
    free_gpu_memory()
    target = driver_command(spec, "--mode", "ranges")
    report = nsys.record(tool, target, folder, name="timeline", traces=TRACES)
    check_recording(nsys.export_sqlite(tool, report, folder / "timeline.sqlite"), need_ranges=True)
    return nsys.record_command(tool, target, folder / "timeline", traces=TRACES)


def purposes(tool: Tool, gpu: Gpu, options: CountOptions) -> list[Purpose]:
    """The counting runs to make: bytes and time with caches left alone, work with caches flushed.

    A section set of ncu's takes many passes, so it is one run with caches flushed.
    """
    if options.section_set:
        return [Purpose("set", (), options.section_set, "all", {})]
    chip = chip_of(gpu.cc, gpu.name)
    listed = ncu.query_metrics(tool, chip)
    found = [plan(chip, tool.version, purpose, available=listed) for purpose in ("traffic", "work")]
    return [Purpose(p.purpose, p.metrics, "", p.cache_control, p.lacking) for p in found if p.metrics]


class Counter:
    """Counting runs of one workload; keeps what was learnt about clocks and passes from one to the next.

    A run whose export is there and that was asked for the same is not made again.
    """

    def __init__(self, folder: Path, spec: Path, gpu: Gpu, options: CountOptions) -> None:
        self.tool = find_tool("ncu")
        self.folder = folder
        self.options = options
        self.purposes = purposes(self.tool, gpu, options)
        self.notes: list[str] = []
        self.exports: list[str] = []
        self._spec = spec
        self._clock = options.clock_control or "base"
        self._cache: dict[str, str] = {}
        self._rounds = 0
        self._command: list[str] = []

    def count(self, windows: list[Window], on_line: Callable[[str], None] | None = None) -> dict[str, pd.DataFrame]:
        """Count every launch in these module calls, once for each purpose; returns counters by purpose.

        Raises:
            NcuError, ToolError: see `kernelroof.profile.ncu`.
        """
        free_gpu_memory()
        self._rounds += 1
        plan_file = self.folder / f"count-plan-{self._rounds}.json"
        write_plan(plan_file, windows)
        target = driver_command(self._spec, "--count-plan", str(plan_file))
        return {p.name: self._purpose(p, target, windows, on_line) for p in self.purposes}

    def _purpose(
        self, purpose: Purpose, target: list[str], windows: list[Window], on_line: Callable[[str], None] | None
    ) -> pd.DataFrame:
        cache = self._cache.get(purpose.name, purpose.cache_control)
        counters = self._run(purpose, target, windows, cache, on_line)
        most = counters["passes"].max()
        if purpose.name == "traffic" and cache == "none" and not _is_null(most) and int(most) > 1:
            self._note(
                f"DRAM bytes took {int(most)} passes on this GPU, so caches were flushed before each: reads of what "
                "the kernel before left in L2 are over-counted"
            )
            self._cache[purpose.name] = "all"
            counters = self._run(purpose, target, windows, "all", on_line)
        return counters

    def _run(
        self,
        purpose: Purpose,
        target: list[str],
        windows: list[Window],
        cache: str,
        on_line: Callable[[str], None] | None,
    ) -> pd.DataFrame:
        """One run of ncu, again without locked clocks where they can't be locked."""
        from kernelroof.parsers.ncu import read_ncu
        from kernelroof.roofline.counted import with_floor

        name = f"counters-{purpose.name}-{self._rounds}" + ("-flushed" if cache != purpose.cache_control else "")
        asked = [purpose._asdict(), [list(w) for w in windows], cache, self.options._asdict(), self.tool.version]
        key, mark, csv = fingerprint(asked), self.folder / f"{name}.json", self.folder / f"{name}.csv"
        if not (csv.exists() and mark.exists() and read_json(mark).get("key") == key):
            counted = self._count(purpose, target, cache, name, on_line)
            ncu.export_counted(self.tool, counted, csv)
            problem = str(counted.problem) if counted.problem is not None else None
            passes = {str(k): v for k, v in counted.said.passes.items()}
            conditions = {"cache_control": cache, "clock_control": self._clock, "command": self._command}
            write_json(mark, {"key": key, "passes": passes, "problem": problem, **conditions})
        made: dict[str, Any] = read_json(mark)
        self.exports.append(csv.name)
        version = ".".join(str(n) for n in self.tool.version)
        report = read_ncu(csv, asked=purpose.metrics, version=version, own_run=True)
        for absent in report.absent:
            self._note(absent.reason)
        if made["problem"]:
            self._note(f"counting ended early, what was counted is kept: {made['problem']}")
        counters = with_floor(report.counters, report.metrics)
        by_launch = {int(k): v for k, v in made["passes"].items()}
        told = counters["launch_id"].map(by_launch).astype("Int64")
        counted_table: pd.DataFrame = counters.assign(passes=told.fillna(counters["passes"]))
        return counted_table

    def _count(
        self, purpose: Purpose, target: list[str], cache: str, name: str, on_line: Callable[[str], None] | None
    ) -> ncu.Counted:
        counting = ncu.Counting(
            metrics=purpose.metrics,
            section_set=purpose.section_set,
            cache_control=cache,
            clock_control=self._clock,
            profile_from_start=False,
        )
        log = self.folder / f"{name}.ncu.log"
        self._command = ncu.count_command(self.tool, target, self.folder / name, counting, log=log)
        try:
            return ncu.count(self.tool, target, self.folder, counting, name=name, on_line=on_line)
        except ClockLockError as error:
            if self.options.clock_control or self._clock == "none":
                raise
            self._clock = "none"
            self._note(f"{error.what}: counted at running clocks (--clock-control none)")
            return self._count(purpose, target, cache, name, on_line)
        except UnknownMetricError as error:
            raise UnknownMetricError(
                error.what, f"Count with --ncu-set full, or report this ncu ({self.tool.text}).", error.evidence
            ) from error

    def _note(self, words: str) -> None:
        if words not in self.notes:
            self.notes.append(words)


def _is_null(value: Any) -> bool:
    import pandas as pd

    return bool(pd.isna(value))
