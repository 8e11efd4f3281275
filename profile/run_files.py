"""What each file of a run folder holds, in words: for the report and the terminal."""

from __future__ import annotations

MEANINGS = {
    "run.json": "what was run, versions, machine, settings",
    "estimate.json": "the model-level estimate in closed form",
    "ops.csv": "the traced estimate: FLOPs and bytes of every op under its module, summed over the phase",
    "modules.csv": "compulsory bytes of every module",
    "bare.json": "bare wall times, without profiler and ranges",
    "bare_again.json": "the bare wall times of a second try, which count where the first was disturbed",
    "wall.json": "how recorded times were brought to the bare ones, the gaps, and what makes figures doubtful",
    "ceilings.json": "the roofs, with every round of their measurement",
    "kernels.csv": "every launch: module, time, FLOPs, bytes, intensity, bound, share of roof, sources, reasons",
    "spread.csv": "median, quartiles, growth and noise of the time in one step, for each phase, module and kernel",
    "repeats.csv": "the time of each kernel, and idle before it, in each step of each recording: what spread.csv "
    "is made of",
    "waterfall.csv": "from the model's ideal to the time it takes for each phase, layer and module",
    "unmatched.csv": "traced ops that were not found in the recording",
    "launches.csv": "the recording as a table",
    "trace.json.gz": "what torch.profiler recorded; opens in Perfetto",
    "repeat_*.json.gz": "the same pass recorded again",
    "timeline.nsys-rep": "the recording; opens in Nsight Systems",
    "timeline.sqlite": "its export",
    "counters.json": "what was counted of how much, and what was left out",
    "counted.csv": "each counted launch on both clocks, with a verdict",
    "counters-*.ncu-rep": "each counting run; opens in Nsight Compute",
    "roofline_*.*": "the rooflines of the phases",
    "kernels/*.*": "the rooflines of the kernels with most time",
}
"""File name or pattern -> what it holds."""
