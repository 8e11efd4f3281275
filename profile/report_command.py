"""`kernelroof report`: the page of a finished run, written again."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelroof.profile.finished_run import FinishedRun
from kernelroof.profile.pipeline import REPORT
from kernelroof.profile.progress import progress
from kernelroof.profile.report_run import write_report
from kernelroof.profile.runfolder import check_target


def run(args: argparse.Namespace) -> int:
    """Write the report of `args.run`; see `profile.run_options`."""
    target = Path(args.out) if args.out else Path(args.run) / REPORT
    file = check_target(target)
    finished = FinishedRun(args.run)
    with progress("writing the report"):
        write_report(finished, file)
    print(target)
    return 0
