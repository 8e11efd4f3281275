"""The commands that look at finished run folders: their options."""

from __future__ import annotations

import argparse
from typing import Any

_REPORT_EPILOG = """examples:
  kernelroof report runs/tiny-llama-cpu-20260101-120000      writes report.html into the run folder
  kernelroof report runs/a --out a.html

The page is one file and needs no network: roofline, waterfall, tables, timeline, estimate, command lines."""


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
