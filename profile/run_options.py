"""The commands that look at finished run folders: their options."""

from __future__ import annotations

import argparse
from typing import Any

from kernelroof.profile.decision_options import new_command

_REPORT_EPILOG = """examples:
  kernelroof report runs/tiny-llama-cpu-20260101-120000      writes report.html into the run folder
  kernelroof report runs/a --out a.html

The page is one file and needs no network: roofline, waterfall, tables, timeline, estimate, command lines."""

_DIFF_EPILOG = """examples:
  kernelroof diff runs/before runs/after
  kernelroof diff runs/bf16 runs/int4 --out diff.html
  kernelroof diff runs/main runs/branch --fail-over 5%      exit status 3 if a phase is slower by more than 5 %

Roles (phase, module, kind of work) are compared, not kernel names. A difference counts only beyond the noise floor:
what repeats of each run, and roles that did not change, differ by themselves. Where both runs have one set-up, what
all work is slower by alike (a busy or throttled machine, or a change that touches everything) is said by itself and
names no role; --fail-over stops at it unless --allow-drift is given. Kind "idle" is the time in which no kernel ran,
right before those of a module."""


_EXPLAIN_EPILOG = """examples:
  kernelroof explain runs/a                                   the phases and their kinds of work
  kernelroof explain runs/a --phase decode                    what bounds it, its modules, its kernels
  kernelroof explain runs/a --phase decode --module mlp       where its time goes, its layers side by side
  kernelroof explain runs/a --phase decode --kernel 1         launches, counters, spread, what to do

Each screen names the command that goes deeper. Times are of one step, on the bare run's clock."""


_TRACE_EPILOG = """examples:
  kernelroof trace runs/a                          writes placed_trace.json.gz into the run folder
  kernelroof trace runs/a --out placed.json

Open it at https://ui.perfetto.dev or in chrome://tracing. Positions and lengths are the recording's own; the figures
in a slice's arguments are on the bare run's clock."""


def add_run_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the commands on run folders to the parser."""
    report = new_command(
        commands,
        "report",
        "report.html of a finished run: roofline, waterfall, kernels, timeline",
        "Write the report of a finished run again, as one HTML file that opens offline.",
        _REPORT_EPILOG,
    )
    report.add_argument("run", metavar="RUN", help="a run folder of `kernelroof profile`")
    report.add_argument("--out", metavar="FILE", help="the page (default: RUN/report.html)")
    diff = new_command(
        commands,
        "diff",
        "two runs compared, role by role, with a noise floor; a gate for CI",
        "Compare two finished runs of `kernelroof profile`: B against A.",
        _DIFF_EPILOG,
    )
    diff.add_argument("a", metavar="A", help="a run folder")
    diff.add_argument("b", metavar="B", help="another run folder")
    diff.add_argument("--fail-over", metavar="PCT", help="fail if a phase of B is slower by more than this and noise")
    diff.add_argument(
        "--allow-drift", action="store_true", help="with --fail-over: let pass what all work is slower by alike"
    )
    diff.add_argument("--out", metavar="FILE", help="also write an HTML page")
    diff.add_argument("--top", type=int, default=8, metavar="N", help="changed roles shown per phase (default: 8)")
    diff.add_argument("--json", action="store_true", help="print one JSON object")
    explain = new_command(
        commands,
        "explain",
        "walk a finished run from the phase down to one kernel and what to do about it",
        "What a phase, module or kernel should take, what it takes, and what could be recovered.",
        _EXPLAIN_EPILOG,
    )
    explain.add_argument("run", metavar="RUN", help="a run folder of `kernelroof profile`")
    explain.add_argument(
        "--phase", choices=("prefill", "decode"), help="one phase (without it all; with --module or --kernel, decode)"
    )
    explain.add_argument(
        "--module", metavar="PATH", help="a module or layer: mlp, layers.1, model.layers.*.mlp.up_proj"
    )
    explain.add_argument("--kernel", type=int, metavar="N", help="the kernel of that number in the phase's list")
    explain.add_argument("--json", action="store_true", help="print one JSON value for scripts")
    trace = new_command(
        commands,
        "trace",
        "the placed kernels of a finished run as a trace for the Perfetto UI",
        "Phases, steps, modules and placed kernels on a timeline, with counters of what they reach.",
        _TRACE_EPILOG,
    )
    trace.add_argument("run", metavar="RUN", help="a run folder of `kernelroof profile`")
    trace.add_argument("--out", metavar="FILE", help=".json or .json.gz (default: RUN/placed_trace.json.gz)")
