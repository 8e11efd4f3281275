"""What a finished run says on the terminal: the card, each phase, the conventions, the doubts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelroof.profile.pictures import PHASES
from kernelroof.roofline.card import estimate_card
from kernelroof.roofline.summary import kernel_table, module_table, phase_summary
from kernelroof.roofline.text import new_console, print_conventions, print_phase
from kernelroof.roofline.units import seconds

if TYPE_CHECKING:
    from kernelroof.profile.pipeline import Pipeline

_STEADY = 1.15
"""Up to this ratio two timings of the same work count as alike."""


def tell(run: Pipeline) -> None:
    """Print the story of a run whose tables are all there."""
    console = new_console()
    console.print(estimate_card(run.estimate), markup=False, soft_wrap=True)
    for phase in PHASES:
        wall_ns = run.walls[phase]["bare_ns"]
        summary = phase_summary(
            run.kernels,
            phase,
            wall_ns=wall_ns,
            steps=run.steps(phase),
            ceilings=run.ceilings,
            ops=run.ops,
            model=run.model_cost(phase),
        )
        shared = {"wall_ns": wall_ns, "ceilings": run.ceilings, "ops": run.ops}
        modules = module_table(run.kernels, phase, **shared)
        # nsys does not know the op of every kernel, so only modules can be compared with the estimate.
        known = run.ops if run.sources.timeline == "torch" else None
        kernels = kernel_table(run.kernels, phase, wall_ns=wall_ns, ceilings=run.ceilings, ops=known)
        print_phase(console, summary, modules, kernels, top=run.job.top)
    print_conventions(console, run.ceilings)
    console.print()
    for line in counting(run):
        console.print(line, markup=False, soft_wrap=True)
    for line in doubts(run):
        console.print(line, style="yellow", markup=False)
    console.print(f"run folder: {run.folder.path}", markup=False)
    console.print("  roofline_prefill.png, roofline_decode.png, kernels/*.png: the pictures", markup=False)
    console.print("  kernels.csv, ops.csv, wall.json, run.json: every number, with its source", markup=False)


def counting(run: Pipeline) -> list[str]:
    """Lines on what ncu counted: how many launches of how many, and what was left out."""
    if run.sources.counters != "ncu":
        return []
    record = run.counters
    if record["status"] != "counted":
        return [f"not counted: {record['why']}. FLOPs and bytes are traced. {record['hint']}"]
    lines = [record["line"], *record["split"], *record["notes"]]
    if record["unjoined"]:
        lines.append(f"{len(record['unjoined'])} module calls differ between the runs and were left unjoined, first:")
        lines += [f"  {words}" for words in record["unjoined"][:3]]
    if record["lacking"]:
        lines.append(f"{len(record['lacking'])} metrics can't be had on this GPU with this ncu: see counters.json")
    return [*lines, "counted.csv: each launch inside ncu's clock and on the timeline's, with a verdict"]


def doubts(run: Pipeline) -> list[str]:
    """Lines on how far the figures can be trusted: the clocks' agreement and what did not match."""
    lines = []
    for phase in PHASES:
        wall = run.walls[phase]
        factor, steps = wall["factor"], run.steps(phase)
        lines.append(
            f"{phase}: bare {seconds(wall['bare_ns'] / steps / 1e9)} a forward (repeats "
            f"{seconds(wall['bare_min_ns'] / steps / 1e9)} to {seconds(wall['bare_max_ns'] / steps / 1e9)}), "
            f"under the profiler {seconds(wall['recorded_ns'] / steps / 1e9)}; its cost per event taken off, "
            f"kernel times scaled by {factor:.3f}"
        )
        if not 1 / _STEADY < factor < _STEADY:
            lines.append(
                f"  NOT STEADY: the recorded {phase} does not fit the bare one (a busy machine, or a changing clock); "
                "do not trust single figures, run again with --overwrite on a quiet machine"
            )
        elif wall["bare_max_ns"] > _STEADY * wall["bare_min_ns"]:
            share = 100 * (_STEADY - 1)
            lines.append(f"  the bare repeats of {phase} differ by more than {share:.0f} %: a busy machine?")
    lost = sum(1 for _ in run.folder.file("unmatched.csv").open(encoding="utf-8")) - 1
    if lost:
        lines.append(f"{lost} traced ops were not found in the recording: see unmatched.csv")
    return lines
