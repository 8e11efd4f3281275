"""What a finished run says on the terminal: the card, each phase, the conventions, the doubts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelroof.roofline.card import estimate_card
from kernelroof.roofline.summary import kernel_table, module_table, phase_summary
from kernelroof.roofline.text import new_console, print_conventions, print_phase
from kernelroof.roofline.units import seconds

if TYPE_CHECKING:
    from kernelroof.profile.pipeline import Pipeline


def tell(run: Pipeline) -> None:
    """Print the story of a run whose tables are all there."""
    console = new_console()
    console.print(estimate_card(run.estimate), markup=False, soft_wrap=True)
    for phase, wall in run.walls.items():
        summary = phase_summary(
            run.kernels,
            phase,
            wall_ns=wall["bare_ns"],
            steps=run.steps(phase),
            ceilings=run.ceilings,
            ops=run.ops,
            model=run.model_cost(phase),
            overlap_ns=wall["overlap_ns"],
        )
        modules = module_table(run.kernels, phase, wall_ns=wall["bare_ns"], ceilings=run.ceilings, ops=run.ops)
        kernels = kernel_table(run.kernels, phase, wall_ns=wall["bare_ns"], ceilings=run.ceilings, ops=run.ops)
        print_phase(console, summary, modules, kernels, top=run.job.top, doubts=wall["doubts"])
    print_conventions(console, run.ceilings)
    console.print()
    for phase in run.walls:
        console.print(clocks(run, phase), markup=False)
    lost = sum(1 for _ in run.folder.file("unmatched.csv").open(encoding="utf-8")) - 1
    if lost:
        console.print(f"{lost} traced ops were not found in the recording: see unmatched.csv", style="yellow")
    console.print(f"run folder: {run.folder.path}", markup=False)
    console.print("  roofline_prefill.png, roofline_decode.png, kernels/*.png: the pictures", markup=False)
    console.print("  kernels.csv, ops.csv, wall.json, run.json: every number, with its source", markup=False)


def clocks(run: Pipeline, phase: str) -> str:
    """One line on how a phase's recorded times were brought to the bare run's clock."""
    wall, steps = run.walls[phase], run.steps(phase)
    bare, low, high, recorded = (
        seconds(wall[k] / steps / 1e9) for k in ("bare_ns", "bare_min_ns", "bare_max_ns", "recorded_ns")
    )
    each = "a step" if steps > 1 else "in all"
    spread = f"{wall['repeats']} repeats took {low} to {high}" if wall["repeats"] > 1 else "1 repeat, spread unknown"
    return (
        f"{phase}: bare {bare} {each} (median; {spread}), under the profiler {recorded}; with the profiler's cost "
        f"per event taken off, recorded times were scaled by {wall['factor']:.3f}"
    )
