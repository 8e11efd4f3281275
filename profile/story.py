"""What a finished run says on the terminal: the card, each phase, the conventions, the doubts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelroof.profile.compiled_record import compiled_lines
from kernelroof.profile.finished_run import FinishedRun
from kernelroof.roofline.advice import what_to_do
from kernelroof.roofline.card import estimate_card
from kernelroof.roofline.siblings import odd_layers
from kernelroof.roofline.spread_text import samples
from kernelroof.roofline.text import new_console, print_conventions, print_phase, wrapped
from kernelroof.roofline.units import counted, seconds
from kernelroof.roofline.waterfall_text import waterfall_lines

if TYPE_CHECKING:
    from kernelroof.profile.pipeline import Pipeline

WHAT_TO_DO = "what to do:"
_SHOWN = 3
"""Odd layers shown of a phase."""


def tell(run: Pipeline) -> None:
    """Print the story of a run whose tables are all there."""
    console = new_console()
    console.print(estimate_card(run.estimate), markup=False, soft_wrap=True)
    finished = FinishedRun(run.folder.path)
    odd = odd_layers(finished.kernels)
    for phase, wall in run.walls.items():
        tables = finished.phase(phase)
        print_phase(console, tables.summary, tables.modules, tables.kernels, top=run.job.top, doubts=wall["doubts"])
        console.print()
        for line in waterfall_lines(run.waterfall, phase, run.steps(phase), scaled=run.scaled):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        console.print()
        steps = what_to_do(
            tables.summary, tables.kernels, finished.terms(phase), finished.setting(phase), wall["doubts"]
        )
        for line in to_do(steps, odd[odd["phase"] == phase]["words"].tolist()):
            wrapped(console, line, indent="" if line == WHAT_TO_DO else "  ")
    for line in compiled_lines(run.folder.path) if run.compiled else []:
        wrapped(console, line.strip(), indent="  " if line.startswith(" ") else "")
    print_conventions(console, run.ceilings)
    console.print()
    for line in counting(run):
        wrapped(console, line.strip(), indent="  " if line.startswith(" ") else "")
    for phase in run.walls:
        wrapped(console, clocks(run, phase))
        wrapped(console, samples(finished.spread, phase))
    lost = sum(1 for _ in run.folder.file("unmatched.csv").open(encoding="utf-8")) - 1
    if lost:
        wrapped(console, f"{lost} traced ops were not found in the recording: see unmatched.csv", "yellow")
    console.print(f"run folder: {run.folder.path}", markup=False)
    console.print("  report.html: all of this to look around in, one file for any browser", markup=False)
    console.print(f"  kernelroof explain {shlex.quote(str(run.folder.path))}: down to a module or kernel", markup=False)
    console.print("  roofline_prefill.png, roofline_decode.png, kernels/*.png: the pictures", markup=False)
    console.print("  waterfall.csv: the terms by phase, layer and module", markup=False)
    console.print("  spread.csv, repeats.csv: medians and spreads over steps and recordings", markup=False)
    console.print("  kernels.csv, ops.csv, wall.json, run.json: every number, with its source", markup=False)


def to_do(steps: Sequence[str], odd: Sequence[str]) -> list[str]:
    """Lines of a phase: what to do, and layers that differ.

    Args:
        steps: of `advice.what_to_do`.
        odd: a sentence for each layer that differs from its siblings.
    """
    more = [f"and {counted(len(odd) - _SHOWN, 'other layer')}"] if len(odd) > _SHOWN else []
    return [WHAT_TO_DO, *steps, *(f"! {words}" for words in [*odd[:_SHOWN], *more])]


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


def clocks(run: Pipeline, phase: str) -> str:
    """One line on how a phase's recorded times were brought to the bare run's clock."""
    wall, steps = run.walls[phase], run.steps(phase)
    bare, low, high, recorded = (
        seconds(wall[k] / steps / 1e9) for k in ("bare_ns", "bare_min_ns", "bare_max_ns", "recorded_ns")
    )
    each = "a step" if steps > 1 else "in all"
    if wall["repeats"] < 2:
        how = "1 repeat, spread unknown"
    elif steps > 1:
        # The sum of medians may lie below the fastest whole repeat: no repeat has only good steps.
        how = f"mean of each step's median over {wall['repeats']} repeats; whole repeats took {low} to {high} a step"
    else:
        how = f"median of {wall['repeats']} repeats, {low} to {high}"
    scaled = (
        f"; with the profiler's cost per event taken off, recorded times were scaled by {wall['factor']:.3f}"
        if run.job.driver.device == "cpu"
        else ""
    )
    return f"{phase}: bare {bare} {each} ({how}), under the profiler {recorded}{scaled}"
