"""The stage that records the timeline: under nsys where that was chosen, else by torch.profiler here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kernelroof.parsers.nsys_errors import NsysError
from kernelroof.profile.backends import Sources
from kernelroof.profile.runfolder import read_json, write_json
from kernelroof.profile.tool_errors import TargetFailed, ToolError

if TYPE_CHECKING:
    from kernelroof.profile.pipeline import Pipeline

MARK = "timeline.json"
"""Which profiler recorded, written last; only where nsys was asked for."""


def outputs(sources: Sources) -> list[str]:
    """The files that the stage must leave."""
    return [MARK] if sources.timeline == "nsys" else ["trace.json.gz", "costs.json"]


def record_timeline(run: Pipeline) -> None:
    """Record one pass. Where nsys can't, and nobody insisted on it, torch does, and a line says so.

    Raises:
        ToolError, NsysError, DriverError: the recording failed.
    """
    if run.sources.timeline == "torch":
        _by_torch(run)
        return
    from kernelroof.profile import nsight_backend

    try:
        command = nsight_backend.record_timeline(run.folder.path, run.spec_file)
    except (NsysError, ToolError) as error:
        # A program that fails by itself fails under any profiler.
        if not run.sources.timeline_may_fall_back or isinstance(error, TargetFailed):
            raise
        print(f"\n  {error.what}: falling back to torch.profiler for times", file=sys.stderr)
        _by_torch(run)
        write_json(run.folder.file(MARK), {"source": "torch", "why": error.what, "hint": error.hint})
        return
    write_json(run.folder.file(MARK), {"source": "nsys", "why": None, "hint": None, "command": command})


def settled(run: Pipeline) -> Sources:
    """The sources of a run once its timeline is recorded."""
    if run.sources.timeline == "torch":
        return run.sources
    return run.sources._replace(timeline=read_json(run.folder.file(MARK))["source"])


def _by_torch(run: Pipeline) -> None:
    from kernelroof.profile.torch_backend import event_costs, record

    write_json(run.folder.file("costs.json"), event_costs())
    record(run.session, run.folder.file("trace.json.gz"), run.job.driver.depth)
