"""The stage that records the timeline: under nsys where that was chosen, else by torch.profiler here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from kernelroof.models.errors import ReportError
from kernelroof.profile.backends import Sources
from kernelroof.profile.repeats import record_again
from kernelroof.profile.runfolder import read_json, write_json
from kernelroof.profile.tool_errors import TargetFailed, ToolError

if TYPE_CHECKING:
    from kernelroof.profile.pipeline import Pipeline

_PHASES = ("prefill", "decode")
_TRIES = 3
"""Bare and recorded passes are made at most so often together, when one of them was disturbed."""
MARK = "timeline.json"
"""Which profiler recorded, written last; only where nsys was asked for."""


def outputs(sources: Sources) -> list[str]:
    """The files that the stage must leave."""
    return [MARK] if sources.timeline == "nsys" else ["trace.json.gz", "costs.json"]


def record_timeline(run: Pipeline) -> list[str]:
    """Record one pass. Where nsys can't, and nobody insisted on it, torch does, and a line says so.

    Returns the names of files that it made besides `outputs`.

    Raises:
        ToolError, ReportError, DriverError: the recording failed.
    """
    if run.sources.timeline == "torch":
        return _by_torch(run)
    from kernelroof.profile import nsight_backend

    try:
        command = nsight_backend.record_timeline(run.folder.path, run.spec_file)
    except (ReportError, ToolError) as error:
        # A program that fails by itself fails under any profiler.
        if not run.sources.timeline_may_fall_back or isinstance(error, TargetFailed):
            raise
        print(f"\n  {error.what}: falling back to torch.profiler for times", file=sys.stderr)
        made = [*outputs(run.sources._replace(timeline="torch")), *_by_torch(run)]
        write_json(run.folder.file(MARK), {"source": "torch", "why": error.what, "hint": error.hint})
        return made
    write_json(run.folder.file(MARK), {"source": "nsys", "why": None, "hint": None, "command": command})
    return ["timeline.sqlite"]


def settled(run: Pipeline) -> Sources:
    """The sources of a run once its timeline is recorded."""
    if run.sources.timeline == "torch":
        return run.sources
    return run.sources._replace(timeline=read_json(run.folder.file(MARK))["source"])


def _by_torch(run: Pipeline) -> list[str]:
    """Record by torch.profiler; once more, or the bare passes once more, where one of the two was disturbed."""
    from kernelroof.profile.cpu_use import cpu_use
    from kernelroof.profile.driver import measure_bare
    from kernelroof.profile.pipeline import BARE_AGAIN
    from kernelroof.profile.torch_backend import event_costs, record
    from kernelroof.roofline.steady import disturbed, total_ns

    costs: dict[str, Any] = {**event_costs()}
    again = run.folder.file(BARE_AGAIN)
    again.unlink(missing_ok=True)
    culprit: str | None = "recorded"
    recorded: dict[str, Any] = {}
    for _ in range(_TRIES):
        if culprit == "recorded":
            with cpu_use() as costs["cpu_use"]:
                recorded = record(run.session, run.folder.file("trace.json.gz"), run.job.driver.depth)
        else:
            fresh = measure_bare(run.session)
            if sum(total_ns(fresh, p) for p in _PHASES) < sum(total_ns(run.bare, p) for p in _PHASES):
                write_json(again, fresh)
                del run.bare
        culprit = disturbed(run.bare, recorded)
        if culprit is None:
            break
    write_json(run.folder.file("costs.json"), costs)
    return [*([BARE_AGAIN] if again.exists() else []), *record_again(run, recorded)]
