"""`kernelroof analyze`: files that profilers wrote elsewhere, placed, judged and drawn.

read -> join -> place on each clock -> verdicts -> tables, pictures, and what the terminal says.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelroof.models.errors import UnknownGpuError, UsageError
from kernelroof.models.workload import Workload
from kernelroof.profile.analyze_inputs import Inputs, read_inputs
from kernelroof.profile.estimate_command import given_from, workload_from
from kernelroof.profile.picture_options import parse_formats
from kernelroof.profile.progress import progress
from kernelroof.profile.runfolder import RUN, RunFolder, whole_file, write_json
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.gpus import Gpu, find_gpu, known_gpu
from kernelroof.roofline.units import counted

if TYPE_CHECKING:
    import pandas as pd
    from kernelroof.models.spec import ModelSpec
    from kernelroof.parsers.ncu import NcuReport
    from kernelroof.roofline.counted import Roofs


class Analysis(NamedTuple):
    """What came out; frames are None where nothing of the kind was given. `table` has the columns ANALYZED."""

    table: pd.DataFrame | None
    counters: pd.DataFrame | None
    unjoined: pd.DataFrame | None
    roofs: Roofs
    estimate: dict[str, Any] | None
    notes: tuple[str, ...]


def run(args: argparse.Namespace) -> int:
    """Analyze `args.paths` into `args.out`; see `profile.cli` for the options."""
    if args.top < 1:
        raise UsageError(f"--top is {args.top}", "Give a whole number of at least 1.")
    formats = parse_formats(args.picture_formats)
    model, given = _model(args), given_from(args, None)
    inputs = read_inputs(args.paths)
    out = Path(args.out)
    own = next((p for p in inputs.paths if p.resolve().parent == out.resolve()), None)
    if own is not None:
        raise UsageError(f"{own} lies in --out {out}", "Choose another folder: what is in it is never overwritten.")
    identity = {
        "command": "analyze",
        "paths": [str(p.resolve()) for p in inputs.paths],
        "gpu": args.gpu,
        "given": given._asdict() if given else None,
        "model": args.model,
    }
    # Before the folder is made: files that don't go together leave nothing behind.
    with progress("joining and placing"):
        analysis = analyze(inputs, args.gpu, given, model)
    with RunFolder(out, identity, overwrite=args.overwrite) as folder:
        write_json(folder.file(RUN), {"status": "running", "identity": identity})
        measured: list[str] = []
        if inputs.silicon:
            from kernelroof.profile.analyze_silicon import print_silicon, run_silicon

            with progress(f"placing and drawing {counted(len(inputs.silicon), 'table')} of measured kernels"):
                measured, shares = run_silicon(inputs.silicon, folder, formats)
            print_silicon(shares)
        from kernelroof.profile.analyze_output import draw, tell, write
        from kernelroof.profile.report_analysis import REPORT, write_report

        with progress("writing and drawing"):
            write(analysis, inputs, folder)
            pictures = {**{Path(name).stem: name for name in measured}, **draw(analysis, inputs, folder, formats)}
            if write_report(analysis, inputs, folder, pictures):
                pictures["report"] = REPORT
        write_json(
            folder.file(RUN),
            {"status": "complete", "identity": identity, "pictures": pictures, "notes": list(analysis.notes)},
        )
        tell(analysis, inputs, folder, pictures, args.top)
    return 0


def analyze(
    inputs: Inputs, gpu: str | None, given: Ceilings | None, model: tuple[ModelSpec, Workload] | None
) -> Analysis:
    """Join, place and judge what was read.

    Args:
        gpu: name of the GPU where the files do not tell, and for the timeline's roofs.
        given: the user's own figures.

    Raises:
        UsageError: files of different GPUs, or more than one timeline.
    """
    import pandas as pd
    from kernelroof.parsers.ncu_errors import NoKernelsError
    from kernelroof.roofline.counted import Roofs, place_counted, with_floor
    from kernelroof.roofline.join import counted_rows, join
    from kernelroof.roofline.report_ceilings import read_ceilings, sheet_ceilings

    reports, again = _distinct(inputs)
    parts = [with_floor(r.counters, r.metrics) for _, r in reports]
    counters = pd.concat(parts, ignore_index=True) if parts else None
    if counters is not None:
        counters["ordinal"] = pd.array(range(len(counters)), dtype="Int64")
    timeline = _one_timeline(inputs)
    sheet, words = _gpu(gpu, inputs, counters)
    # A report that names its GPU is never filled up with the figures of another one.
    told = [str(name) for name in counters["gpu"].dropna().unique()] if counters is not None else []
    own = known_gpu(told[0]) if told else None
    roofs = Roofs(
        ncu=read_ceilings(counters, own or sheet, given) if counters is not None else None,
        timeline=sheet_ceilings(sheet, given) if timeline is not None else None,
    )
    table = unjoined = None
    if timeline is not None:
        joined = join(timeline.launches, counters)
        table, unjoined = place_counted(joined.rows, roofs), joined.unjoined
    elif counters is not None:
        table = place_counted(counted_rows(counters), roofs)
    notes = [*inputs.notes, *again, *words, *(n for t in inputs.timelines for n in t.notes)]
    for path, report in reports:
        # A log may be of several runs: that one of them profiled nothing is not said of those in the table.
        problems = [p for p in report.log.problems if report.counters.empty or not isinstance(p, NoKernelsError)]
        notes += [f"{path.name}: {n}" for n in (*report.notes, *map(str, problems))]
    return Analysis(table, counters, unjoined, roofs, _estimate(model, roofs), tuple(dict.fromkeys(notes)))


def _distinct(inputs: Inputs) -> tuple[list[tuple[Path, NcuReport]], list[str]]:
    """The reports without those that repeat another launch for launch (a copy, an export beside its report)."""
    kept: list[tuple[Path, NcuReport]] = []
    notes = []
    for path, report in inputs.reports:
        twin = next((p for p, r in kept if _facts(r).equals(_facts(report))), None)
        if twin is None:
            kept.append((path, report))
        else:
            notes.append(f"{path.name} holds the same launches and figures as {twin.name}: counted once")
    return kept, notes


def _facts(report: NcuReport) -> pd.DataFrame:
    """What a launch is told by, whichever way it was exported."""
    columns = ["gpu", "cc", "device", "launch_id", "kernel", "grid", "block", "time_ns", "dram_bytes", "flops"]
    facts: pd.DataFrame = report.counters[columns]
    return facts


def _one_timeline(inputs: Inputs) -> Any:
    if len(inputs.timelines) > 1:
        names = ", ".join(t.path.name for t in inputs.timelines)
        raise UsageError(f"more than one timeline was given ({names})", "Analyze one at a time.")
    return inputs.timelines[0] if inputs.timelines else None


def _gpu(asked: str | None, inputs: Inputs, counters: pd.DataFrame | None) -> tuple[Gpu | None, list[str]]:
    """The GPU in the table: the one asked for, else the one that the files name; and what to know of it."""
    named = [str(g) for g in counters["gpu"].dropna().unique()] if counters is not None else []
    named += [t.gpu for t in inputs.timelines if t.gpu]
    named = list(dict.fromkeys(named))
    known = known_gpu(named[0]) if len(named) == 1 else None
    chips = [str(c) for c in counters["cc"].dropna().unique()] if counters is not None else []
    chips = list(dict.fromkeys([*chips, *([known.cc] if known is not None and chips else [])]))
    for different in (named, [f"compute capability {c}" for c in chips]):
        if len(different) > 1:
            raise UsageError(f"the files are of different GPUs ({', '.join(different)})", "Analyze each by itself.")
    if asked:
        gpu = find_gpu(asked)
        if known not in (None, gpu):
            return gpu, [f"--gpu {gpu.product} was given, but the files name {named[0]}"]
        return gpu, []
    if not named:
        return None, []
    try:
        return find_gpu(named[0]), []
    except UnknownGpuError as error:
        return None, [str(error)]


def _model(args: argparse.Namespace) -> tuple[ModelSpec, Workload] | None:
    if not args.model:
        return None
    from kernelroof.models.presets import display_name, load_config
    from kernelroof.models.spec import read_spec

    spec = read_spec(load_config(args.model), display_name(args.model))
    return spec, workload_from(args, spec)


def _estimate(model: tuple[ModelSpec, Workload] | None, roofs: Roofs) -> dict[str, Any] | None:
    """The closed form, at the roofs of the clock that the table is judged on."""
    if model is None:
        return None
    from kernelroof.models.record import estimate_record

    spec, workload = model
    found = roofs.timeline if roofs.timeline is not None and roofs.timeline.compute else roofs.ncu
    kind = {"bfloat16": "tensor:bf16", "float16": "tensor:fp16", "float32": "fp32"}.get(workload.dtype, "tensor:fp8")
    at = found.ceilings(kind) if found is not None else None
    return estimate_record(
        spec,
        workload,
        device=at.name if at else None,
        flop_s=at.flop_s if at else None,
        byte_s=at.byte_s if at else None,
        origin=at.note if at else None,
    )


def write_frame(folder: RunFolder, name: str, frame: pd.DataFrame) -> None:
    """One table of the folder, under its name only when it is whole."""
    from kernelroof.roofline.tables import write_csv

    with whole_file(folder.file(name)) as temporary:
        write_csv(frame, temporary)
