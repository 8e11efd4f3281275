"""The commands that look at finished run folders: their options."""

from __future__ import annotations

import argparse
from typing import Any

_REPORT_EPILOG = """examples:
  kernelroof report runs/tiny-llama-cpu-20260101-120000      writes report.html into the run folder
  kernelroof report runs/a --out a.html

The page is one file and needs no network: roofline, waterfall, tables, timeline, estimate, command lines."""

_DIFF_EPILOG = """examples:
  kernelroof diff runs/before runs/after
  kernelroof diff runs/bf16 runs/int4 --out diff.html
  kernelroof diff runs/main runs/branch --fail-over 5%      exit status 3 if a phase is slower by more than 5 %

Roles (phase, module, kind of work) are compared, not kernel names. A difference counts only beyond the noise floor:
what repeats of each run, and roles that did not change, differ by themselves."""


def add_run_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the commands on run folders to the parser."""
    report = commands.add_parser(
        "report",
        help="report.html of a finished run: roofline, waterfall, kernels, timeline",
        description="Write the report of a finished run again, as one HTML file that opens offline.",
        epilog=_REPORT_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_argument("run", metavar="RUN", help="a run folder of `kernelroof profile`")
    report.add_argument("--out", metavar="FILE", help="the page (default: RUN/report.html)")
    diff = commands.add_parser(
        "diff",
        help="two runs compared, role by role, with a noise floor; a gate for CI",
        description="Compare two finished runs of `kernelroof profile`: B against A.",
        epilog=_DIFF_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    diff.add_argument("a", metavar="A", help="a run folder")
    diff.add_argument("b", metavar="B", help="another run folder")
    diff.add_argument("--fail-over", metavar="PCT", help="fail if a phase of B is slower by more than this and noise")
    diff.add_argument("--out", metavar="FILE", help="also write an HTML page")
    diff.add_argument("--top", type=int, default=8, metavar="N", help="changed roles shown per phase (default: 8)")
    diff.add_argument("--json", action="store_true", help="print one JSON object")
