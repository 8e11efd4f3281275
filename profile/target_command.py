"""`kernelroof profile --backend nsight [MODEL] -- PROGRAM ...`: somebody else's program, by its own ranges.

nsys records the whole program, ncu counts the kernels with most time, and each process (a rank of a
distributed run) gets its own report: kernels placed on both clocks, with verdicts. MODEL, if given, supplies
the estimate. The program is started once for each recording, so it must do the same each time.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelroof.models.errors import ReportError, UsageError
from kernelroof.profile import backends
from kernelroof.profile.analyze_command import Analysis
from kernelroof.profile.analyze_inputs import Inputs, Timeline
from kernelroof.profile.count_options import CountOptions
from kernelroof.profile.estimate_command import given_from, workload_from
from kernelroof.profile.nsight_options import count_options
from kernelroof.profile.ranks import counters_by_rank
from kernelroof.profile.runfolder import RUN, RunFolder, write_json
from kernelroof.profile.target_run import count_target, record_target
from kernelroof.profile.tool_errors import ToolError
from kernelroof.roofline.ceilings import Ceilings

if TYPE_CHECKING:
    import pandas as pd
    from kernelroof.models.spec import ModelSpec
    from kernelroof.models.workload import Workload
    from kernelroof.parsers.nsys_sqlite import Nsys
    from kernelroof.roofline.counted import Roofs

_SHOWN = 8
_MEASURED_IN = "bfloat16"
_RECORD_INSIDE = "record with torch.profiler in the program itself and give the trace to `kernelroof analyze`"
_NO_GPU = f"Run it where a GPU is; or {_RECORD_INSIDE}; or name a model without -- to run it here."


def run_target(args: argparse.Namespace) -> int:
    """Profile the program in `args.target`; see `profile.cli` for the options."""
    target = check_target(args.target)
    if args.plan:
        raise UsageError("--plan knows nothing of another program", "Leave it out, or name a model without --.")
    if args.top is not None and args.top < 1:
        raise UsageError(f"--top is {args.top}", "Give a whole number of at least 1.")
    if args.backend == "torch" or args.timeline == "torch":
        raise UsageError("torch.profiler can't see into another program", f"Use --backend nsight, or {_RECORD_INSIDE}.")
    given_from(args, None)  # what is absurd is said before anything is recorded
    gpu = backends.find_gpu("cuda")
    if gpu is None:
        raise backends.BackendUnavailable(
            "another program is profiled under nsys and ncu, and this run has no GPU", _NO_GPU
        )
    sources, lost = backends.choose_sources("nsight" if args.counters is None else "auto", "nsys", args.counters, gpu)
    for line in lost:
        print(line, file=sys.stderr)
    model = _model(args)
    options = count_options(args)
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(target[-1] if len(target) == 1 else _program(target)).stem)
    out = Path(args.out) if args.out else Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    asked = {"timeline": sources.timeline, "counters": sources.counters, **options._asdict()}
    identity = {"command": "profile", "target": target, "model": args.model, "sources": asked}
    with RunFolder(out, identity, overwrite=args.overwrite) as folder:
        record = {"status": "running", "identity": identity, "backend": "nsight", "sources": sources._asdict()}
        write_json(folder.file(RUN), record)
        _run(folder, target, sources, options, gpu, model, args)
        write_json(folder.file(RUN), {**record, "status": "complete"})
    return 0


def check_target(target: list[str]) -> list[str]:
    """The program after `--`.

    Raises:
        UsageError: nothing after `--`, or no such program.
    """
    if not target:
        raise UsageError("nothing follows --", "Name the program: kernelroof profile --backend nsight -- python run.py")
    if shutil.which(target[0]) is None:
        raise UsageError(f"{target[0]} is no program on this machine", "Check its name and PATH.")
    return target


def _program(target: list[str]) -> str:
    """The script among the words, for the name of the run folder."""
    return next((word for word in target if word.endswith((".py", ".sh"))), target[0])


def _run(
    folder: RunFolder,
    target: list[str],
    sources: backends.Sources,
    options: CountOptions,
    gpu: backends.Gpu | None,
    model: tuple[ModelSpec, Workload] | None,
    args: argparse.Namespace,
) -> None:
    from kernelroof.parsers.nsys_sqlite import read_nsys

    print(f"recording {' '.join(target)} under nsys", file=sys.stderr)
    files = ["timeline.sqlite"]
    folder.stage("timeline", {"target": target}, files, lambda: record_target(folder.path, target))
    nsys = read_nsys(folder.file("timeline.sqlite"))
    notes = [*nsys.notes]
    counters = None
    if sources.counters == "ncu" and gpu is not None:
        print("counting the kernels with most time under ncu", file=sys.stderr)
        try:
            counters, said = count_target(folder.path, target, nsys, gpu, options)
            notes += said
        except (ReportError, ToolError) as error:
            if not sources.may_fall_back and args.counters == "ncu":
                raise
            print(f"{error.what}: only times are known. {error.hint}", file=sys.stderr)
            notes.append(f"not counted: {error.what}")
    roofs = _roofs(args, nsys, counters, gpu)
    ranks, words = counters_by_rank(nsys, counters)
    notes += words
    for rank, (process, own) in enumerate(ranks):
        place = folder if len(ranks) == 1 else RunFolder(folder.file(f"rank{rank}"), {})
        place.path.mkdir(exist_ok=True)
        print(f"\nrank {rank} (process {process})" if len(ranks) > 1 else "")
        one = process if len(ranks) > 1 else None
        _report(place, nsys, one, own, roofs, model, tuple(notes), args.top or _SHOWN)


def _report(
    folder: RunFolder,
    nsys: Nsys,
    process: int | None,
    counters: pd.DataFrame | None,
    roofs: Roofs,
    model: tuple[ModelSpec, Workload] | None,
    notes: tuple[str, ...],
    top: int,
) -> None:
    """The report of one process; None: of the only one."""
    from kernelroof.profile.analyze_output import draw, tell, write
    from kernelroof.roofline.counted import place_counted
    from kernelroof.roofline.join import join

    launches = nsys.launches if process is None else nsys.launches_of(process)
    joined = join(launches, counters)
    table = place_counted(joined.rows, roofs)
    analysis = Analysis(table, counters, joined.unjoined, roofs, _estimate(model, roofs), notes)
    timeline = Timeline(nsys.path, launches, None, (), nsys if process is None else None)
    inputs = Inputs((nsys.path,), (), (timeline,), (), (), ())
    write(analysis, inputs, folder)
    pictures = draw(analysis, inputs, folder)
    tell(analysis, inputs, folder, pictures, top)


def _roofs(args: argparse.Namespace, nsys: Nsys, counters: pd.DataFrame | None, gpu: backends.Gpu | None) -> Roofs:
    """The roofs of both clocks: named by the user, else measured here, else those of the GPU's sheet."""
    from kernelroof.roofline.counted import Roofs
    from kernelroof.roofline.gpus import find_gpu, known_gpu
    from kernelroof.roofline.report_ceilings import read_ceilings, sheet_ceilings

    named = nsys.devices["name"].dropna()
    name = args.gpu or (str(named.iloc[0]) if len(named) else gpu.name if gpu else "")
    sheet = find_gpu(name) if args.gpu else known_gpu(name)
    on_line = sheet_ceilings(sheet, None if args.gpu else given_from(args, None) or measure_roofs())
    return Roofs(read_ceilings(counters, sheet) if counters is not None else None, on_line)


def measure_roofs() -> Ceilings | None:
    """The roofs of this GPU at running clocks; None where torch sees none."""
    if backends.find_gpu("cuda") is None:
        return None
    from kernelroof.roofline.measure import measure_ceilings

    return measure_ceilings(_MEASURED_IN, device="cuda", threads=None)[0]


def _model(args: argparse.Namespace) -> tuple[ModelSpec, Workload] | None:
    if args.model is None:
        return None
    from kernelroof.models.presets import display_name, load_config
    from kernelroof.models.spec import read_spec

    spec = read_spec(load_config(args.model), display_name(args.model))
    return spec, workload_from(args, spec)


def _estimate(model: tuple[ModelSpec, Workload] | None, roofs: Roofs) -> dict[str, Any] | None:
    """The closed form at the timeline's roofs."""
    if model is None:
        return None
    from kernelroof.models.record import estimate_record

    at = roofs.timeline.ceilings() if roofs.timeline is not None else None
    return estimate_record(
        *model,
        device=at.name if at else None,
        flop_s=at.flop_s if at else None,
        byte_s=at.byte_s if at else None,
        origin=at.note if at else None,
    )
