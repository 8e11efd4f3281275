"""The whole run on one page: which stage makes which file from which.

ceilings -> bare -> timeline -> kernels -> estimate -> ops -> pictures, then the story on the
terminal. A stage is skipped when its files are there and what went into it did not change.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.record import estimate_record
from kernelroof.models.spec import ModelSpec
from kernelroof.models.workload import Workload
from kernelroof.profile.driver_spec import DriverSpec
from kernelroof.profile.runfolder import RUN, RunFolder, fingerprint, read_json, whole_file, write_json, write_text
from kernelroof.roofline.ceilings import Ceilings, from_json, highest, to_json
from kernelroof.roofline.steady import total_ns

if TYPE_CHECKING:
    import pandas as pd
    from kernelroof.models.trace import Trace
    from kernelroof.profile.driver import Session
    from kernelroof.roofline.wall import PhaseWall


PHASES = ("prefill", "decode")
BARE_AGAIN = "bare_again.json"
FILES = (
    *("roofs.json", "bare.json", BARE_AGAIN, "costs.json", "trace.json.gz", "launches.csv", "kernels.csv"),
    *("unmatched.csv", "wall.json", "ceilings.json", "ops.csv", "modules.csv", "estimate.json"),
    *("estimate_other.json", "pictures.json", "roofline_prefill.png", "roofline_decode.png"),
    *("kernels/prefill_*.png", "kernels/decode_*.png"),
)
"""All that a run writes, as glob patterns."""
_ROUNDS = 4
"""The roofs are measured at most so often."""
_TRIES = 3
"""Bare and recorded passes are made at most so often together, when one of them was disturbed."""


class Job(NamedTuple):
    """What one `profile` command asks for. `other` is a device to estimate for besides this one."""

    spec: ModelSpec
    workload: Workload
    driver: DriverSpec
    other: Ceilings | None
    top: int


def run_job(job: Job, out: Path, *, overwrite: bool = False) -> None:
    """Run every stage of a job into the folder `out` and print what came out of it.

    Raises:
        KernelroofError: see the stages.
        KeyboardInterrupt: after saying how the run goes on.
    """
    from kernelroof.profile.driver import check
    from kernelroof.profile.environment import describe

    environment = describe(job.driver.device)
    check(job.driver)
    try:
        with interrupts() as stop, RunFolder(out, identity(job, environment), files=FILES, overwrite=overwrite) as run:
            Pipeline(job, run, environment, stop).run()
    except KeyboardInterrupt:
        print(f"kernelroof: stopped; the same command with --out {out} goes on from there", file=sys.stderr)
        raise


def identity(job: Job, environment: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run the same run: where any of it differs, another folder is needed."""
    driver = dataclasses.asdict(job.driver)
    first = {k: driver.pop(k) for k in ("batch", "prompt", "output", "dtype", "attn", "cache", "device", "weights")}
    conventions = {k: getattr(job.workload, k) for k in ("mask", "embedding", "overhead")}
    machine = {
        "cpu": environment["cpu"]["model"],
        "torch": environment["packages"]["torch"],
        "transformers": environment["packages"]["transformers"],
    }
    driver["threads"] = driver["threads"] or environment["cpu"]["threads"]
    return {"model": job.spec.name, **first, **conventions, "driver": driver, "machine": machine}


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Remember an interrupt, and let SIGTERM end a run as cleanly as Ctrl-C does.

    Python drops a KeyboardInterrupt that is raised inside a finaliser; asking the yielded function between
    stages makes up for that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    seen: list[int] = []

    def handle(number: int, _: object) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Pipeline:
    """The stages of one run; heavy things are made when a stage first needs them."""

    def __init__(
        self, job: Job, folder: RunFolder, environment: Mapping[str, Any], stopped: Callable[[], bool]
    ) -> None:
        self.job = job
        self.folder = folder
        self._environment = environment
        self._stopped = stopped
        self._stage_number = 0
        self._touched = False

    def run(self) -> None:
        """All stages in order, then the terminal's story."""
        print(f"run folder: {self.folder.path}", file=sys.stderr)
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
        if self._touched or read_json(self.folder.file(RUN)).get("status") != "complete":
            self._write_run("complete")
        from kernelroof.profile.story import tell

        tell(self)

    # One method per stage; each writes its files and nothing else.

    def _bare(self) -> None:
        from kernelroof.profile.driver import measure_bare

        write_json(self.folder.file("bare.json"), measure_bare(self.session))

    def _roofs(self) -> None:
        write_text(self.folder.file("roofs.json"), to_json(*self._measure_roofs()))

    def _timeline(self) -> list[str]:
        from kernelroof.profile.torch_backend import event_costs, record
        from kernelroof.roofline.steady import disturbed

        write_json(self.folder.file("costs.json"), event_costs())
        again = self.folder.file(BARE_AGAIN)
        again.unlink(missing_ok=True)
        culprit: str | None = "recorded"
        recorded: dict[str, Any] = {}
        for _ in range(_TRIES):
            if culprit == "recorded":
                recorded = record(self.session, self.folder.file("trace.json.gz"), self.job.driver.depth)
            else:
                self._bare_again()
            culprit = disturbed(self.bare, recorded)
            if culprit is None:
                break
        return [BARE_AGAIN] if again.exists() else []

    def _bare_again(self) -> None:
        """Time the bare passes again after a disturbance; kept where it is the faster record."""
        from kernelroof.profile.driver import measure_bare

        fresh = measure_bare(self.session)
        if sum(total_ns(fresh, p) for p in PHASES) < sum(total_ns(self.bare, p) for p in PHASES):
            write_json(self.folder.file(BARE_AGAIN), fresh)
            del self.bare

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
        from kernelroof.roofline.steady import agreed
        from kernelroof.roofline.tables import unmatched_table
        from kernelroof.roofline.wall import reconcile

        kineto = read_kineto(self.folder.file("trace.json.gz"))
        self._write_csv("launches.csv", launches(kineto))
        matched = match(kineto, self.trace.ops)
        self._write_csv("unmatched.csv", unmatched_table(matched.unmatched_traced))
        rows, walls = reconcile(matched.rows, kineto, self.bare, read_json(self.folder.file("costs.json")))
        rounds = [from_json(self.folder.file("roofs.json").read_text(encoding="utf-8"))]
        # A neighbour on the machine can lower a measured roof, never raise it: so it is measured before and
        # after the run, and again when the two don't agree or a kernel seems to be above it.
        while True:
            rounds.append(self._measure_roofs())
            roofs = highest([ceilings for ceilings, _ in rounds])
            placed = place(rows.assign(dram_pct=None, sm_pct=None), roofs)
            measured = [ceilings for ceilings, _ in rounds]
            if len(rounds) == _ROUNDS or (agreed(measured) and not above_compute(placed)):
                break
        write_json(self.folder.file("wall.json"), self._walls(walls, measured))
        details = {"rounds": [{**ceilings._asdict(), **details} for ceilings, details in rounds]}
        write_text(self.folder.file("ceilings.json"), to_json(roofs, details))
        self._write_csv("kernels.csv", conform(placed, KERNELS, "kernels"))

    def _pictures(self) -> list[str]:
        from kernelroof.profile.pictures import draw_all

        drawn = draw_all(self)
        write_json(self.folder.file("pictures.json"), drawn)
        return [name for phase in drawn.values() for name in (phase["roofline"], *phase["kernels"].values())]

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
        """The bare run's times: of the second try, if the first was disturbed."""
        again = self.folder.file(BARE_AGAIN)
        return read_json(again if again.exists() else self.folder.file("bare.json"))

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

    def _walls(self, walls: Mapping[str, PhaseWall], rounds: list[Ceilings]) -> dict[str, Any]:
        """wall.json: each phase's account, with all that makes its figures doubtful."""
        from kernelroof.roofline.steady import phase_doubts, roof_doubts

        load = self._environment["load_average"] or [None]
        roofs = roof_doubts(rounds, load[0], self._environment["cpu"]["usable"])
        content: dict[str, Any] = {}
        for phase, wall in walls.items():
            account = wall.to_dict()
            content[phase] = {**account, "doubts": [*phase_doubts(account, self.steps(phase)), *roofs]}
        return content

    def _measure_roofs(self) -> tuple[Ceilings, dict[str, Any]]:
        from kernelroof.roofline.measure import measure_ceilings

        driver = self.job.driver
        return measure_ceilings(driver.dtype, device=driver.device, threads=driver.threads)

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
        say = f"[{self._stage_number}/7] {words}"
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
            "environment": self._environment,
            "backend": "torch",
            "doubts": sorted({d for wall in self.walls.values() for d in wall["doubts"]})
            if status == "complete"
            else None,
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
