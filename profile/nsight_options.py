"""The options of `profile` that choose timeline and counters, and the program named after `--`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kernelroof.models.errors import UsageError
from kernelroof.profile.count_options import BACKENDS, COUNTERS, TIMELINES, CountOptions

EPILOG = """under Nsight (a GPU, nsys and ncu):
  kernelroof profile llama-3-8b --plan                   what a run would count, and how long it would take
  kernelroof profile llama-3-8b --backend nsight         nsys for times, ncu for bytes, FLOPs and shares
  kernelroof profile llama-3-8b --timeline torch --counters ncu
  kernelroof profile --backend nsight -- python serve.py any program, by its own NVTX ranges"""


def add_nsight_options(parser: argparse.ArgumentParser) -> None:
    """Add the group of options to the parser of `profile`."""
    group = parser.add_argument_group("profilers")
    group.add_argument(
        "--backend",
        choices=BACKENDS,
        default="auto",
        help="auto takes nsys and ncu where there are a GPU and the tools, else torch (default: auto)",
    )
    group.add_argument("--timeline", choices=TIMELINES, help="where times come from (default: the backend's)")
    group.add_argument(
        "--counters", choices=COUNTERS, help="where bytes and FLOPs come from: counted, or traced from the model"
    )
    group.add_argument(
        "--every-kernel", action="store_true", help="count every launch instead of members of each class"
    )
    group.add_argument("--ncu-set", metavar="SET", default="", help="count a whole section set of ncu's, e.g. full")
    group.add_argument(
        "--clock-control",
        choices=("base", "none"),
        default="",
        help="GPU clocks while counting (default: base where they may be locked, else none)",
    )
    group.add_argument("--plan", action="store_true", help="print what a run would do and cost, and start nothing")


def split_target(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """The options of `profile` and the program after the first `--`; None where there is no `--`."""
    words = list(argv)
    if words[:1] != ["profile"] or "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


def count_options(args: argparse.Namespace) -> CountOptions:
    """How to count, as asked for.

    Raises:
        UsageError: a section set that is no word.
    """
    if args.ncu_set and not args.ncu_set.replace("-", "").replace("_", "").isalnum():
        raise UsageError(f"--ncu-set {args.ncu_set!r} is no name of a set", "List them with `ncu --list-sets`.")
    return CountOptions(args.every_kernel, args.ncu_set, args.clock_control, args.top)
