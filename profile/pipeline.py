"""The whole run on one page: which stage makes which file from which.

ceilings -> bare -> timeline -> kernels -> estimate -> ops -> pictures, then the story on the
terminal. A stage is skipped when its files are there and what went into it did not change.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.record import estimate_record
from kernelroof.models.spec import ModelSpec
from kernelroof.models.workload import Workload
from kernelroof.profile.driver_spec import DriverSpec
from kernelroof.profile.runfolder import RUN, RunFolder, fingerprint, read_json, whole_file, write_json, write_text
from kernelroof.roofline.ceilings import Ceilings, from_json, highest, to_json

if TYPE_CHECKING:
    import pandas as pd
    from kernelroof.models.trace import Trace
    from kernelroof.profile.driver import Session


_ROUNDS = 4
"""The roofs are measured at most so often."""


class Job(NamedTuple):
    """What one `profile` command asks for. `other` is a device to estimate for besides this one."""

    spec: ModelSpec
    workload: Workload
    driver: DriverSpec
    other: Ceilings | None
    top: int


def run_job(job: Job, out: Path, *, overwrite: bool = False) -> None:
    """Run every stage of a job into the folder `out` and print what came out of it."""
    with RunFolder(out, identity(job), overwrite=overwrite) as run:
        Pipeline(job, run).run()


def identity(job: Job) -> dict[str, Any]:
    """What makes a run the same run: where any of it differs, another folder is needed."""
    driver = dataclasses.asdict(job.driver)
    first = {k: driver.pop(k) for k in ("batch", "prompt", "output", "dtype", "attn", "cache", "device", "weights")}
    conventions = {k: getattr(job.workload, k) for k in ("mask", "embedding", "overhead")}
    return {"model": job.spec.name, **first, **conventions, "driver": driver}


class Pipeline:
    """The stages of one run; heavy things are made when a stage first needs them."""

    def __init__(self, job: Job, folder: RunFolder) -> None:
        self.job = job
        self.folder = folder
        self._stage_number = 0

    def run(self) -> None:
        """All stages in order, then the terminal's story."""
        from kernelroof.profile.environment import describe

        self._write_run("running", describe())
        self._stage("roofs", {}, ["roofs.json"], self._roofs, "measuring this machine's roofs")
        self._stage("bare", {}, ["bare.json"], self._bare, "timing bare runs, no ranges and no profiler")
        self._stage("timeline", {}, ["trace.json.gz", "costs.json"], self._timeline, "recording every op")
        measured = {name: self.folder.key_of(name) for name in ("roofs", "bare", "timeline")}
        tables = ["launches.csv", "kernels.csv", "unmatched.csv", "wall.json", "ceilings.json"]
        self._stage("kernels", measured, tables, self._kernels, "tracing the ops, placing every kernel")
        measured["ceilings"] = fingerprint(self.ceilings)
        self._stage("ops", measured, ["ops.csv", "modules.csv"], self._ops, "writing the traced estimate")
        other = self.job.other._asdict() if self.job.other else None
        estimates = ["estimate.json", *(["estimate_other.json"] if other else [])]
        self._stage("estimate", {**measured, "other": other}, estimates, self._estimate, "estimating the model")
        drawn = {**measured, "top": self.job.top}
        self._stage("pictures", drawn, ["pictures.json"], self._pictures, "drawing the rooflines")
        self._write_run("complete", describe())
        from kernelroof.profile.story import tell

        tell(self)

    # One method per stage; each writes its files and nothing else.

    def _bare(self) -> None:
        from kernelroof.profile.driver import measure_bare

        write_json(self.folder.file("bare.json"), measure_bare(self.session))

    def _roofs(self) -> None:
        write_text(self.folder.file("roofs.json"), to_json(*self._measure_roofs()))

    def _timeline(self) -> None:
        from kernelroof.profile.torch_backend import event_costs, record

        write_json(self.folder.file("costs.json"), event_costs())
        record(self.session, self.folder.file("trace.json.gz"), self.job.driver.depth)

    def _estimate(self) -> None:
        write_json(self.folder.file("estimate.json"), _record(self.job, self.ceilings))
        if self.job.other:
            write_json(self.folder.file("estimate_other.json"), _record(self.job, self.job.other))

    def _ops(self) -> None:
        from kernelroof.roofline.tables import modules_table, ops_table

        self._write_csv("ops.csv", ops_table(self.trace.ops, self.ceilings))
        self._write_csv("modules.csv", modules_table(self.trace.module_io))

    def _kernels(self) -> None:
        from kernelroof.parsers.kineto import launches, read_kineto
        from kernelroof.parsers.schema import KERNELS, conform
        from kernelroof.roofline.match import match
        from kernelroof.roofline.place import above_compute, place
        from kernelroof.roofline.tables import unmatched_table
        from kernelroof.roofline.wall import reconcile

        kineto = read_kineto(self.folder.file("trace.json.gz"))
        self._write_csv("launches.csv", launches(kineto))
        matched = match(kineto, self.trace.ops)
        self._write_csv("unmatched.csv", unmatched_table(matched.unmatched_traced))
        rows, walls = reconcile(matched.rows, kineto, self.bare, read_json(self.folder.file("costs.json")))
        write_json(self.folder.file("wall.json"), {phase: wall.to_dict() for phase, wall in walls.items()})
        rounds = [from_json(self.folder.file("roofs.json").read_text(encoding="utf-8"))]
        # A neighbour on the machine can lower a measured roof, never raise it: so it is measured before and
        # after the run, and again when a kernel seems to be above it.
        while True:
            rounds.append(self._measure_roofs())
            roofs = highest([ceilings for ceilings, _ in rounds])
            placed = place(rows.assign(dram_pct=None, sm_pct=None), roofs)
            if len(rounds) == _ROUNDS or not above_compute(placed):
                break
        details = {"rounds": [{**ceilings._asdict(), **details} for ceilings, details in rounds]}
        write_text(self.folder.file("ceilings.json"), to_json(roofs, details))
        self._write_csv("kernels.csv", conform(placed, KERNELS, "kernels"))

    def _pictures(self) -> None:
        from kernelroof.profile.pictures import draw_all

        write_json(self.folder.file("pictures.json"), draw_all(self))

    # What stages share, read back from the files so that a resumed run sees what a fresh one does.

    @cached_property
    def session(self) -> Session:
        """The model, built when a stage must run it."""
        from kernelroof.profile.driver import prepare

        return prepare(self.job.driver)

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
        """bare.json."""
        content: dict[str, Any] = read_json(self.folder.file("bare.json"))
        return content

    @cached_property
    def ceilings(self) -> Ceilings:
        """The ceilings of this machine."""
        return from_json(self.folder.file("ceilings.json").read_text(encoding="utf-8"))[0]

    @cached_property
    def estimate(self) -> dict[str, Any]:
        """estimate.json."""
        content: dict[str, Any] = read_json(self.folder.file("estimate.json"))
        return content

    @cached_property
    def walls(self) -> dict[str, dict[str, Any]]:
        """wall.json: by phase, where the bare wall time went."""
        content: dict[str, dict[str, Any]] = read_json(self.folder.file("wall.json"))
        return content

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """kernels.csv."""
        from kernelroof.parsers.schema import KERNELS

        return self._read_csv("kernels.csv", {c.name: c.dtype for c in KERNELS})

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

    def _measure_roofs(self) -> tuple[Ceilings, dict[str, Any]]:
        from kernelroof.roofline.measure import measure_ceilings

        driver = self.job.driver
        return measure_ceilings(driver.dtype, device=driver.device, threads=driver.threads)

    def _stage(
        self, name: str, inputs: Mapping[str, Any], outputs: list[str], work: Callable[[], None], words: str
    ) -> None:
        self._stage_number += 1
        say = f"[{self._stage_number}/7] {words}"
        print(f"{say} ...", end="", file=sys.stderr, flush=True)
        started = time.perf_counter()
        try:
            ran = self.folder.stage(name, {"identity": self.folder.identity, **inputs}, outputs, work)
        except BaseException:
            print(file=sys.stderr)
            raise
        print(f" {time.perf_counter() - started:.1f} s" if ran else " kept", file=sys.stderr)

    def _write_run(self, status: str, environment: dict[str, Any]) -> None:
        content = {
            "status": status,
            "identity": self.folder.identity,
            "environment": environment,
            "backend": "torch",
            "config": self.job.driver.config,
        }
        write_json(self.folder.file(RUN), content)

    def _write_csv(self, name: str, frame: pd.DataFrame) -> None:
        from kernelroof.roofline.tables import write_csv

        with whole_file(self.folder.file(name)) as temporary:
            write_csv(frame, temporary)

    def _read_csv(self, name: str, dtypes: Mapping[str, str]) -> pd.DataFrame:
        import pandas as pd

        wanted = {k: "string" if v == "str" else v for k, v in dtypes.items()}
        return pd.read_csv(self.folder.file(name), dtype=wanted or None)


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
