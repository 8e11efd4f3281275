"""One pass of the driver with the profilers' capture open around chosen module calls only.

ncu can't pick launches reliably by number, but it can be told to wait for cudaProfilerStart
(`--profile-from-start off`). So the plan names calls of modules, and the capture is open exactly while
one of them, and nothing below it, is the innermost range.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelroof.models.errors import OutputError
from kernelroof.models.kinds import ROOT_MODULE
from kernelroof.parsers.kineto_nesting import STEP
from kernelroof.profile.ranges import Sink, module_ranges, nvtx_sink
from kernelroof.profile.runfolder import write_json
from kernelroof.profile.window import Window

if TYPE_CHECKING:
    from kernelroof.profile.driver import Session


def write_plan(path: Path, windows: Iterable[Window]) -> None:
    """Write the calls to count as JSON: `{"windows": [["decode", 0, "lm_head"], ...]}`."""
    write_json(path, {"windows": [list(w) for w in windows]})


def read_plan(path: Path) -> list[Window]:
    """Read what `write_plan` wrote.

    Raises:
        OutputError: not readable, or no such plan.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [Window(str(phase), int(step), str(module)) for phase, step, module in content["windows"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise OutputError(f"the count plan {path} can't be read ({error})", "Write it again.") from error


def capture_sink(windows: Iterable[Window], start: Callable[[], None], stop: Callable[[], None]) -> Sink:
    """A sink that calls `start` when a chosen call begins, or is come back to, and `stop` when it is left.

    A module's call is left while a module inside of it runs: that one has a window of its own.
    """
    wanted = set(windows)
    stack: list[str] = []
    is_open = False

    def settle() -> None:
        nonlocal is_open
        inside = innermost(stack) in wanted
        if inside != is_open:
            is_open = inside
            (start if inside else stop)()

    def push(name: str) -> None:
        stack.append(name)
        settle()

    def pop() -> None:
        stack.pop()
        settle()

    return Sink(push, pop)


def innermost(stack: list[str]) -> Window | None:
    """The call that open ranges (phase, step, modules) are in; None outside of a step."""
    if len(stack) < 2:
        return None
    step = STEP.fullmatch(stack[1])
    return Window(stack[0], int(step[1]), stack[-1] if len(stack) > 2 else ROOT_MODULE) if step else None


def measure_counted(session: Session, windows: Iterable[Window]) -> dict[str, Any]:
    """Run one pass under NVTX ranges with the capture open around these calls only.

    The result has the shape of `driver.measure_bare`'s; its times say nothing under a counting profiler.
    """
    from kernelroof.profile.driver import no_collection, run_pass, times_record, warm_up

    warm_up(session)
    sinks = [nvtx_sink()]
    if session.spec.device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(session.spec.device)
        # The profiler decides at the launch, on this thread: nothing has to wait for the device.
        sinks.append(capture_sink(windows, torch.cuda.profiler.start, torch.cuda.profiler.stop))
    with module_ranges(session.model, session.spec.depth, sinks) as ranges, no_collection():
        times = run_pass(session, ranges)
    return {**times_record(session, [times]), "depth": session.spec.depth}
