"""The whole run on one page: which stage makes which file from which.

roofs -> bare -> timeline -> counters -> kernels -> ops -> estimate -> pictures -> report, then the story on
the terminal. A stage is skipped when its files are there and what went into it did not change. The
timeline is recorded by torch or nsys; counters are those of ncu, or there are none and figures are traced.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.record import estimate_record
from kernelroof.models.spec import ModelSpec
from kernelroof.models.workload import Workload
from kernelroof.profile.backends import Gpu, Sources
from kernelroof.profile.compiled_record import COMPILED, compile_words
from kernelroof.profile.count_options import CountOptions
from kernelroof.profile.cpu_use import cpu_use
from kernelroof.profile.driver_spec import DriverSpec
from kernelroof.profile.interrupts import interrupts
from kernelroof.profile.repeats import SPREAD, STEPS, TRACES
from kernelroof.profile.runfolder import RUN, RunFolder, fingerprint, read_json, whole_file, write_json, write_text
from kernelroof.roofline.ceilings import Ceilings, from_json, to_json

if TYPE_CHECKING:
    import pandas as pd
    from kernelroof.models.trace import Trace
    from kernelroof.profile.driver import Session


BARE_AGAIN = "bare_again.json"
"""The bare run's times of a second try, where the first was disturbed."""
WATERFALL = "waterfall.csv"
REPORT = "report.html"
MEASURED = ("bare", "timeline", "counters")
FILES = (
    *(
        "roofs.json",
        "bare.json",
        "bare.log",
        BARE_AGAIN,
        "costs.json",
        "trace.json.gz",
        TRACES,
        "spec.json",
        "timeline.*",
    ),
    *("launches.csv", "kernels.csv", "unmatched.csv", "wall.json", "ceilings.json", "ops.csv", "modules.csv"),
    *(WATERFALL, STEPS, SPREAD, COMPILED),
    *("estimate.json", "estimate_other.json", "pictures.json", "roofline_prefill.*", "roofline_decode.*"),
    *("kernels/prefill_*", "kernels/decode_*", "counters.json", "counted.csv", "counted_launches.csv"),
    *("count-plan-*.json", "counters-*", REPORT),
)
"""All that a run writes, as glob patterns."""


class Job(NamedTuple):
    """What one `profile` command asks for. `other` is a device to estimate for besides this one; `gpu` the
    one it runs on; `lost` has a line for each thing that this machine lacks."""

    spec: ModelSpec
    workload: Workload
    driver: DriverSpec
    other: Ceilings | None
    top: int
    sources: Sources = Sources()
    counting: CountOptions = CountOptions()
    gpu: Gpu | None = None
    lost: tuple[str, ...] = ()
    formats: tuple[str, ...] = ("png",)


def run_job(job: Job, out: Path, *, overwrite: bool = False, resume: Path | None = None) -> None:
    """Run every stage of a job into the folder `out` and print what came out of it.

    Args:
        resume: the --out that the user gave, where `out` is a part of it.

    Raises:
        KernelroofError: see the stages.
        KeyboardInterrupt: after saying how the run goes on.
    """
    from kernelroof.profile.driver import check
    from kernelroof.profile.environment import describe

    environment = describe(job.driver.device)
    check(job.driver)
    try:
        what = identity(job, environment)
        with interrupts() as stop, RunFolder(out, what, files=FILES, measured=MEASURED, overwrite=overwrite) as run:
            for line in job.lost:
                print(line, file=sys.stderr)
            Pipeline(job, run, environment, stop).run()
    except KeyboardInterrupt:
        print(f"kernelroof: stopped; the same command with --out {resume or out} goes on from there", file=sys.stderr)
        raise


def identity(job: Job, environment: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run the same run: where any of it differs, another folder is needed."""
    driver = dataclasses.asdict(job.driver)
    if driver["compile"] is None:
        del driver["compile"]
    first = {k: driver.pop(k) for k in ("batch", "prompt", "output", "dtype", "attn", "cache", "device", "weights")}
    conventions = {k: getattr(job.workload, k) for k in ("mask", "embedding", "overhead")}
    machine = {
        "cpu": environment["cpu"]["model"],
        "torch": environment["packages"]["torch"],
        "transformers": environment["packages"]["transformers"],
    }
    driver["threads"] = driver["threads"] or environment["cpu"]["threads"]
    sources = {"timeline": job.sources.timeline, "counters": job.sources.counters}
    if job.sources.counters == "ncu":
        sources |= job.counting._asdict()
    return {
        "model": job.spec.name,
        **first,
        **conventions,
        "driver": driver,
        "machine": machine,
        "sources": sources,
    }


class Pipeline:
    """The stages of one run; heavy things are made when a stage first needs them."""

    def __init__(
        self, job: Job, folder: RunFolder, environment: Mapping[str, Any], stopped: Callable[[], bool]
    ) -> None:
        self.job = job
        self.folder = folder
        self.environment = environment
        self.sources = job.sources
        self._stopped = stopped
        self._stage_number = 0
        self._touched = False

    def run(self) -> None:
        """All stages in order, then the terminal's story."""
        from kernelroof.profile import timeline_stage

        print(f"run folder: {self.folder.path}", file=sys.stderr)
        self._stage("roofs", {}, ["roofs.json"], self._roofs, "measuring this machine's roofs")
        self._stage("bare", {}, ["bare.json"], self._bare, "timing bare runs, no ranges and no profiler")
        self._stage("timeline", {}, timeline_stage.outputs(self.sources), self._timeline, "recording every op")
        self.sources = timeline_stage.settled(self)
        measured = {name: self.folder.key_of(name) for name in ("roofs", "bare", "timeline")}
        if self.sources.counters == "ncu":
            after = {"timeline": measured["timeline"]}
            self._stage("counters", after, ["counters.json"], self._counters, "counting bytes and FLOPs under ncu")
            measured["counters"] = self.folder.key_of("counters")
        tables = ["launches.csv", "kernels.csv", "unmatched.csv", STEPS, SPREAD, "wall.json", "ceilings.json"]
        tables += [COMPILED] if self.job.driver.compile else []
        self._stage("kernels", measured, tables, self._kernels, "tracing the ops, placing every kernel")
        measured["ceilings"] = fingerprint(self.ceilings)
        tables = ["ops.csv", "modules.csv", WATERFALL]
        self._stage("ops", measured, tables, self._ops, "writing the traced estimate and the waterfall")
        other = self.job.other._asdict() if self.job.other else None
        estimates = ["estimate.json", *(["estimate_other.json"] if other else [])]
        self._stage("estimate", {**measured, "other": other}, estimates, self._estimate, "estimating the model")
        drawn = {**measured, "top": self.job.top, "formats": list(self.job.formats)}
        self._stage("pictures", drawn, ["pictures.json"], self._pictures, "drawing the rooflines")
        self._stage("report", measured, [REPORT], self._report, "writing the report")
        if self._touched or read_json(self.folder.file(RUN)).get("status") != "complete":
            self._write_run("complete")
        from kernelroof.profile.story import tell

        tell(self)

    # One method per stage; each writes its files and nothing else.

    def _bare(self) -> None:
        if self.sources.uses_nsight:
            from kernelroof.profile.nsight_backend import bare_run

            bare_run(self.folder.path, self.spec_file, self.folder.file("bare.json"))
            return
        from kernelroof.profile.driver import measure_bare

        write_json(self.folder.file("bare.json"), measure_bare(self.session))

    def _roofs(self) -> None:
        write_text(self.folder.file("roofs.json"), to_json(*self.measure_roofs()))

    def _timeline(self) -> list[str]:
        from kernelroof.profile.timeline_stage import record_timeline

        return record_timeline(self)

    def _counters(self) -> None:
        from kernelroof.profile.counters_stage import count_run

        # A model that a recording left on the GPU would take the memory that the counted one needs.
        self.__dict__.pop("session", None)
        count_run(self)

    def _estimate(self) -> None:
        write_json(self.folder.file("estimate.json"), _record(self.job, self.ceilings))
        if self.job.other:
            write_json(self.folder.file("estimate_other.json"), _record(self.job, self.job.other))

    def _ops(self) -> None:
        from kernelroof.roofline.tables import modules_table, ops_table

        self.write_csv("ops.csv", ops_table(self.trace.ops, self.ceilings))
        self.write_csv("modules.csv", modules_table(self.trace.module_io))
        self.write_csv(WATERFALL, self._make_waterfall())

    def _make_waterfall(self) -> pd.DataFrame:
        from kernelroof.roofline.gpus import datasheet_roof
        from kernelroof.roofline.waterfall import Roof, waterfall_table

        sheet = datasheet_roof(self.job.gpu.name, self.job.driver.dtype) if self.job.gpu else None
        return waterfall_table(
            self.trace.ops,
            self.kernels,
            self.walls,
            sheet=Roof(*sheet) if sheet else None,
            measured=Roof(self.ceilings.flop_s, self.ceilings.byte_s),
            scaled=self.scaled,
        )

    def _kernels(self) -> None:
        from kernelroof.profile.kernels_stage import make_kernels

        make_kernels(self)

    def _pictures(self) -> list[str]:
        from kernelroof.profile.pictures import draw_all, files_of, what_was_run

        load, formats = self.job.driver, self.job.formats
        what = what_was_run(dataclasses.asdict(load), self.job.spec.name, self.ceilings.name)
        drawn = draw_all(self, self.folder.path, what, top=self.job.top, formats=formats)
        write_json(self.folder.file("pictures.json"), drawn)
        return files_of(drawn, formats)

    def _report(self) -> None:
        from kernelroof.profile.finished_run import FinishedRun
        from kernelroof.profile.report_run import write_report

        self._write_run("running")  # with the sources as they turned out
        write_report(FinishedRun(self.folder.path, unfinished=True), self.folder.file(REPORT))

    # What stages share, read back from the files so that a resumed run sees what a fresh one does.

    @cached_property
    def session(self) -> Session:
        """The model, built when a stage must run it."""
        from kernelroof.profile.driver import prepare

        return prepare(self.job.driver)

    @cached_property
    def spec_file(self) -> Path:
        """The driver's spec as a file, for the programs that run it."""
        path = self.folder.file("spec.json")
        write_text(path, self.job.driver.to_json())
        return path

    @cached_property
    def counters(self) -> dict[str, Any]:
        """counters.json: what was counted and how, or why nothing was."""
        return read_json(self.folder.file("counters.json"))

    @cached_property
    def trace(self) -> Trace:
        """The traced estimate of the very workload that ran."""
        from kernelroof.models.trace import trace

        driver = self.job.driver
        return trace(
            driver.config,
            batch=driver.batch,
            prompt=driver.prompt,
            output=driver.output,
            dtype=driver.dtype,
            attn=driver.attn,
            cache=driver.cache,
            head=driver.head,
        )

    @cached_property
    def bare(self) -> dict[str, Any]:
        """The bare run's times: of the second try, if the first was disturbed."""
        again = self.folder.file(BARE_AGAIN)
        return read_json(again if again.exists() else self.folder.file("bare.json"))

    @cached_property
    def compiled(self) -> dict[str, Any] | None:
        """What was compiled and which kernels it calls; None for an eager run."""
        found: dict[str, Any] | None = self.bare.get("compile")
        return found

    @cached_property
    def ceilings(self) -> Ceilings:
        """The ceilings of this machine."""
        return from_json(self.folder.file("ceilings.json").read_text(encoding="utf-8"))[0]

    @cached_property
    def estimate(self) -> dict[str, Any]:
        """estimate.json."""
        return read_json(self.folder.file("estimate.json"))

    @cached_property
    def walls(self) -> dict[str, dict[str, Any]]:
        """wall.json: by phase, where the bare wall time went."""
        return read_json(self.folder.file("wall.json"))

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """kernels.csv."""
        from kernelroof.parsers.schema import KERNELS

        return self._read_csv("kernels.csv", {c.name: c.dtype for c in KERNELS})

    @cached_property
    def waterfall(self) -> pd.DataFrame:
        """waterfall.csv."""
        return self._read_csv(WATERFALL, {})

    @property
    def scaled(self) -> bool:
        """Whether kernels' times were brought to the bare run's clock one by one: on a CPU, see `wall`."""
        return self.job.driver.device == "cpu"

    @cached_property
    def ops(self) -> pd.DataFrame:
        """ops.csv."""
        return self._read_csv("ops.csv", {})

    def steps(self, phase: str) -> int:
        """Forwards in a phase."""
        return self.job.driver.output if phase == "decode" else 1

    def model_cost(self, phase: str) -> tuple[int, int]:
        """FLOPs and unavoidable bytes of a whole phase, in closed form."""
        record = self.estimate[phase]
        if phase == "decode":
            return record["total_flops"], record["total_bytes"]
        return record["flops"], record["bytes"]

    def measure_roofs(self) -> tuple[Ceilings, dict[str, Any]]:
        """Measure this machine's roofs now: the ceilings, and how they were measured."""
        from kernelroof.roofline.measure import measure_ceilings

        driver = self.job.driver
        with cpu_use() as use:
            ceilings, details = measure_ceilings(driver.dtype, device=driver.device, threads=driver.threads)
        return ceilings, {**details, "cpu_use": use}

    def _stage(
        self,
        name: str,
        inputs: Mapping[str, Any],
        outputs: list[str],
        work: Callable[[], Iterable[str] | None],
        words: str,
    ) -> None:
        if self._stopped():
            raise KeyboardInterrupt
        self._stage_number += 1
        inputs = {"identity": self.folder.identity, **inputs}
        if not self._touched and not self.folder.is_kept(name, inputs, outputs):
            self._touched = True
            self._write_run("running")
        say = f"[{self._stage_number}/{9 if self.sources.counters == 'ncu' else 8}] {words}"
        print(f"{say} ...", end="", file=sys.stderr, flush=True)
        started = time.perf_counter()
        try:
            ran = self.folder.stage(name, inputs, outputs, work)
        except BaseException:
            print(file=sys.stderr)
            raise
        print(f" {time.perf_counter() - started:.1f} s" if ran else " kept", file=sys.stderr)

    def _write_run(self, status: str) -> None:
        content = {
            "status": status,
            "identity": self.folder.identity,
            "environment": self.environment,
            "backend": "nsight" if self.sources.uses_nsight else "torch",
            "sources": self.sources._asdict(),
            "doubts": sorted({d for wall in self.walls.values() for d in wall["doubts"]})
            if status == "complete"
            else None,
            "config": self.job.driver.config,
            **({"compile": compile_words(self.job.driver)} if self.job.driver.compile else {}),
        }
        write_json(self.folder.file(RUN), content)

    def write_csv(self, name: str, frame: pd.DataFrame) -> None:
        """Write a table into the run folder."""
        from kernelroof.roofline.tables import write_csv

        with whole_file(self.folder.file(name)) as temporary:
            write_csv(frame, temporary)

    def _read_csv(self, name: str, dtypes: Mapping[str, str]) -> pd.DataFrame:
        import pandas as pd

        wanted = {k: "string" if v == "str" else v for k, v in dtypes.items()}
        # Only an empty cell is missing: a module may be named "NA" or "null".
        return pd.read_csv(self.folder.file(name), dtype=wanted or None, keep_default_na=False, na_values=[""])


def _record(job: Job, ceilings: Ceilings) -> dict[str, Any]:
    return estimate_record(
        job.spec,
        job.workload,
        device=ceilings.name,
        flop_s=ceilings.flop_s,
        byte_s=ceilings.byte_s,
        memory_bytes=ceilings.memory_bytes,
        origin=f"{ceilings.origin}: {ceilings.note}",
    )
