"""More recordings than the one that kernels.csv is made of: how much a kernel's time differs from one to the next.

The steps of one recording share the machine's mood, and prefill is in it once. So the pass is recorded again, as
often as costs little; of these recordings only times by role and step are kept (repeats.csv, spread.csv).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelroof.roofline.steady import total_ns

if TYPE_CHECKING:
    from kernelroof.profile.kernels_stage import Timeline
    from kernelroof.profile.pipeline import Pipeline
    from kernelroof.roofline.wall import PhaseWall

RECORDINGS = 3
"""Recordings of a pass, where the time allows."""
_BUDGET_NS = 20e9
"""Bare time of all passes that are recorded again, at most."""
TRACE = "trace.json.gz"
STEPS, SPREAD = "repeats.csv", "spread.csv"
TRACES = "repeat_*.json.gz"


def record_again(run: Pipeline, first: Mapping[str, Any]) -> list[str]:
    """Record the pass again under torch.profiler; returns the names of the files.

    A pass that takes long is not recorded again: the figures of its prefill then rest on one sample, and say so. What
    disturbs a recording makes it longer, so the shortest of them takes the place of the first, which kernels.csv is
    made of.

    Args:
        first: times of the first recording (`torch_backend.record`).
    """
    from kernelroof.profile.torch_backend import record

    for old in run.folder.path.glob(TRACES):
        old.unlink()
    names = [f"repeat_{n}.json.gz" for n in range(1, min(RECORDINGS, 1 + int(_BUDGET_NS // _took(run.bare))))]
    took = {name: _took(record(run.session, run.folder.file(name), run.job.driver.depth, warm=True)) for name in names}
    shortest = min(took, key=lambda name: took[name], default=None)
    if shortest is not None and took[shortest] < _took(first):
        main, other, between = (run.folder.file(n) for n in (TRACE, shortest, f"{shortest}.part"))
        for source, target in ((main, between), (other, main), (between, other)):
            source.replace(target)
    return names


def _took(times: Mapping[str, Any]) -> float:
    return sum(total_ns(times, phase) for phase in ("prefill", "decode"))


def write_spread(run: Pipeline, timeline: Timeline) -> None:
    """Write repeats.csv and spread.csv from the run's own recording and those recorded again."""
    import pandas as pd
    from kernelroof.roofline.spread import all_steps, levelled, role_steps, step_spread, wall_spread, with_launches

    steps = all_steps(
        role_steps(one.rows, number, paces(one.walls, timeline.walls) if run.scaled else None)
        for number, one in enumerate(chain([timeline], _again(run)))
    )
    steps = levelled(steps)
    run.write_csv(STEPS, steps)
    spread = with_launches(step_spread(steps), timeline.rows)
    run.write_csv(SPREAD, pd.concat([wall_spread(run.bare), spread], ignore_index=True)[list(spread)])


def paces(walls: Mapping[str, PhaseWall], first: Mapping[str, PhaseWall]) -> dict[str, float]:
    """By phase, how much longer a recording took than the first, as a ratio.

    On a CPU each recording by itself is brought to the bare run's time, so their sums would be alike whatever the
    machine did meanwhile, and what takes nearly all of a phase would look steady in any case. On a GPU durations
    are true as they are.
    """
    return {phase: wall.recorded_ns / first[phase].recorded_ns for phase, wall in walls.items()}


def _again(run: Pipeline) -> Iterator[Timeline]:
    """Each recording that was made again, on the bare run's clock."""
    from kernelroof.profile.kernels_stage import rows_of_trace

    traces: list[Path] = sorted(run.folder.path.glob(TRACES)) if run.sources.timeline == "torch" else []
    for trace in traces:
        yield rows_of_trace(run, trace)
