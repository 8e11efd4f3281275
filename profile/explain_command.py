"""`kernelroof explain`: a finished run from the phase down to one kernel, a screen at a time."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import TYPE_CHECKING, Any

from kernelroof.models.errors import UsageError
from kernelroof.profile.finished_run import FinishedRun

if TYPE_CHECKING:
    from kernelroof.roofline.explain import PhaseView


def run(args: argparse.Namespace) -> int:
    """Print one screen of the run `args.run`; see `profile.run_options`.

    Raises:
        UsageError: no such phase, module or kernel; OutputError: the run folder is damaged.
    """
    from kernelroof.roofline import explain, explain_text

    finished = FinishedRun(args.run)
    folder = shlex.quote(args.run)
    record: Any
    if args.module is not None and args.kernel is not None:
        raise UsageError("--module and --kernel are two views", "Give one of them.")
    if args.module is not None or args.kernel is not None:
        view = phase_view(
            finished, args.phase or ("decode" if "decode" in finished.walls else next(iter(finished.walls)))
        )
        if args.module is not None:
            record = explain.module_view(view, args.module)
            lines = explain_text.module_lines(record, folder)
        else:
            record = explain.kernel_view(view, args.kernel)
            lines = explain_text.kernel_lines(record, folder)
    elif args.phase:
        record = explain.overview(phase_view(finished, args.phase))
        lines = explain_text.phase_lines(record, folder)
    else:
        record = [explain.overview(phase_view(finished, name)) for name in finished.walls]
        lines = explain_text.run_lines(record, folder)
    print(json.dumps(record, ensure_ascii=False, allow_nan=False) if args.json else "\n".join(lines))
    return 0


def phase_view(run: FinishedRun, name: str) -> PhaseView:
    """One phase of a run as the views take it.

    Raises:
        UsageError: the run has no such phase.
    """
    from kernelroof.roofline.advice import phase_answers
    from kernelroof.roofline.explain import PhaseView

    if name not in run.walls:
        raise UsageError(f"the run has no phase {name}", f"It has {', '.join(run.walls)}.")
    tables = run.phase(name)
    doubts = run.walls[name]["doubts"]
    answers = phase_answers(*tables, run.terms(name), run.setting(name), doubts)
    counted = run.counted
    return PhaseView(
        name=name,
        steps=run.steps(name),
        summary=tables.summary,
        modules=tables.modules,
        kinds=tables.kinds,
        kernels=tables.kernels,
        rows=run.kernels[run.kernels["phase"] == name],
        parts=run.waterfall[run.waterfall["phase"] == name],
        answers=answers,
        counted=None if counted is None else counted[counted["phase"] == name],
        repeats=run.repeats[run.repeats["phase"] == name],
        doubts=doubts,
    )
