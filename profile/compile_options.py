"""The options of `profile` that run the model compiled."""

from __future__ import annotations

import argparse

from kernelroof.models.errors import UsageError
from kernelroof.profile.compile_check import COMPILE_MODES, GRAPHS_MODE

EPILOG = """compiled (torch.compile; a C++ compiler on a CPU, triton on a GPU):
  kernelroof profile tiny-llama --compile                inductor's kernels, by the modules that they compute
  kernelroof profile llama-3-8b --cuda-graphs            each forward replayed as one CUDA graph
  kernelroof profile llama-3-8b --compile max-autotune"""


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """Add the group of options to the parser of `profile`."""
    parser.set_defaults(cache=None)  # dynamic, or static where compiled: see `compile_mode`
    group = parser.add_argument_group("compiled")
    group.add_argument(
        "--compile",
        nargs="?",
        const="default",
        metavar="MODE",
        help=f"run under torch.compile: {', '.join(COMPILE_MODES)} (default: default); implies --cache static. "
        "Give it after MODEL",
    )
    group.add_argument("--cuda-graphs", action="store_true", help=f"the same as --compile {GRAPHS_MODE}; needs a GPU")


def compile_mode(args: argparse.Namespace) -> str | None:
    """The mode that was asked for; None: eager.

    Raises:
        UsageError: a mode that there is not, two that differ, or a cache that compiled code can't use.
    """
    mode: str | None = args.compile
    if mode is not None and mode not in COMPILE_MODES:
        hint = f"Choose one of {', '.join(COMPILE_MODES)}."
        if args.model is None:
            hint += f" If {mode} is the model, give it before --compile."
        raise UsageError(f"--compile {mode} is no mode of torch.compile", hint)
    if args.cuda_graphs and mode not in (None, GRAPHS_MODE):
        raise UsageError(f"--cuda-graphs and --compile {mode} exclude each other", "Leave one of them out.")
    mode = GRAPHS_MODE if args.cuda_graphs else mode
    if mode is not None and args.counters == "ncu":
        raise UsageError(
            "ncu counts in calls of modules, and compiled code has none",
            "Leave --counters ncu out, or count an eager run.",
        )
    if mode is not None and args.cache not in (None, "static"):
        raise UsageError(
            f"a compiled run needs --cache static, and {args.cache} was asked for: its shapes change each step",
            "Leave --cache out, or say --cache static.",
        )
    return mode
