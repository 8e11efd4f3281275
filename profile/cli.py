"""The command line: options and dispatch only; each command's work is imported when it runs."""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from kernelroof.models.errors import KernelroofError, UsageError
from kernelroof.parsers.plain import plain
from kernelroof.profile.compile_options import EPILOG as COMPILE_EPILOG
from kernelroof.profile.compile_options import add_compile_options
from kernelroof.profile.decision_options import add_decision_commands
from kernelroof.profile.nsight_options import EPILOG as NSIGHT_EPILOG
from kernelroof.profile.nsight_options import add_nsight_options, split_target
from kernelroof.profile.picture_options import add_picture_formats, add_pictures
from kernelroof.profile.run_options import add_run_commands
from kernelroof.profile.workload_options import add_workload

TRACEBACK = "KERNELROOF_TRACEBACK"
"""Environment variable: an unforeseen error is raised, not said in a line."""
UNFORESEEN = 70
"""Exit status of an unforeseen error."""

_EPILOG = """examples:
  kernelroof estimate llama-3-8b --gpu a100-80gb       what the model must cost, in milliseconds of CPU time
  kernelroof profile tiny-llama                        run it here, every op on a measured roofline
  kernelroof models                                    the presets
  kernelroof gpus                                      the GPU table and where its figures come from
  kernelroof architectures --only 'qwen*'              which causal LMs of transformers are traced and agree

`kernelroof COMMAND --help` shows a command's options."""

_ESTIMATE_EPILOG = """examples:
  kernelroof estimate llama-3-8b --gpu a100-80gb --prompt 1024 --output 256
  kernelroof estimate qwen2.5-7b --gpu h100-sxm --batch 32 --weights-dtype int4
  kernelroof estimate llama-3-8b --gpu h100-sxm --weights-dtype fp8 --kv-dtype fp8
  kernelroof estimate path/to/checkpoint --gpu l4 --json          quantisation and stored bytes are read from its files
  kernelroof estimate tiny-qwen --calibrate runs/tiny-llama-cpu      how long it takes where that run was made
  kernelroof estimate llama-3-8b --peak-tflops 312 --bandwidth-gbs 2039 --memory-gb 80"""

_PROFILE_EPILOG = """examples:
  kernelroof profile tiny-llama
  kernelroof profile tiny-qwen --batch 4 --prompt 256 --output 16 --out runs/qwen
  kernelroof profile tiny-llama --batch 1,2,4,8 --prompt 128        one folder, curves beside the estimate's
  kernelroof profile path/to/config.json --device cpu --dtype float32 --ranges layer
  kernelroof profile path/to/checkpoint --weights path/to/checkpoint --attn eager

An interrupted run goes on where it stopped: give the same options and the same --out."""


_ANALYZE_EPILOG = """examples:
  kernelroof analyze counters.ncu-rep --out look                          inside ncu, at the report's own roofs
  kernelroof analyze counters.csv timeline.sqlite --gpu h100-sxm --out look   and true durations, phases, steps
  kernelroof analyze trace.json.gz --model llama-3-8b --prompt 1024 --out look

Shares of a roof stay inside one clock: wholly in ncu, or wholly on the timeline."""


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="kernelroof",
        description="Why an LLM inference step takes longer than its model says, kernel by kernel.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_estimate(commands)
    _add_profile(commands)
    models = commands.add_parser("models", help="list the presets", description="List the model presets.")
    models.add_argument("--json", action="store_true", help="print one JSON array")
    gpus = commands.add_parser("gpus", help="list the GPU table with its sources", description="List the GPU table.")
    gpus.add_argument("gpu", nargs="?", help="show one GPU in full")
    gpus.add_argument("--json", action="store_true", help="print one JSON array")
    _add_architectures(commands)
    _add_doctor(commands)
    _add_analyze(commands)
    add_run_commands(commands)
    add_pictures(commands)
    add_decision_commands(commands)
    return parser


def _add_architectures(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "architectures",
        help="which causal LMs of the installed transformers are traced, and where the closed form agrees",
        description="Trace every causal-LM architecture of the installed transformers, with a small default config, "
        "and compare with the closed form. Each runs in a process of its own.",
    )
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="a model_type, a part of one, or a pattern such as 'qwen*'"
    )
    parser.add_argument("--out", metavar="FILE", help="write the table to FILE.md or FILE.csv")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes at a time (default: the CPU cores)")
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds for one architecture (default: 300)"
    )


def _add_analyze(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "analyze",
        help="place kernels from files that were recorded elsewhere",
        description="Rooflines, verdicts and tables from exports of ncu (.ncu-rep, CSV), nsys (.sqlite, stats CSV) "
        "and torch.profiler (.json, .json.gz), alone or together.",
        epilog=_ANALYZE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, or a folder with such files")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for tables and pictures")
    parser.add_argument("--overwrite", action="store_true", help="replace another analysis found in --out")
    parser.add_argument("--top", type=int, default=12, metavar="N", help="kernels shown (default: 12)")
    add_picture_formats(parser)
    add_workload(parser, model_option=True)


def _add_doctor(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="what works on this machine, and what to do where it does not",
        description="GPU, driver, torch, nsys, ncu, ranges, counters, room for files: one line each. "
        "Exit status 1 if anything stands in the way of the nsight backend.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON array")


def _add_estimate(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "estimate",
        help="the model-level estimate, no GPU and no weights needed",
        description="Weights, KV cache, FLOPs, memory traffic, arithmetic intensity, bound and ideal times.",
        epilog=_ESTIMATE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_workload(parser)
    parser.add_argument(
        "--traced", action="store_true", help="run the real module on the meta device instead (any architecture)"
    )
    parser.add_argument(
        "--calibrate", metavar="RUN", help="a finished run folder: its measured over ideal times, applied to this model"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object for scripts")


def _add_profile(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "profile",
        help="run prefill and decode, measure every kernel, place it on the roofline",
        description="Run a model's prefill and decode here and place every kernel beside the estimate.",
        epilog=f"{_PROFILE_EPILOG}\n\n{COMPILE_EPILOG}\n\n{NSIGHT_EPILOG}",
        usage="kernelroof profile [options] MODEL\n       kernelroof profile [options] [MODEL] -- PROGRAM [ARG ...]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_workload(parser, optional_model=True, lists=True)
    parser.add_argument("--out", metavar="DIR", help="run folder (default: runs/MODEL-DEVICE-TIME)")
    parser.add_argument("--overwrite", action="store_true", help="replace another run found in --out")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to run (default: auto)"
    )
    parser.add_argument("--weights", metavar="PATH", help="load this checkpoint folder (default: random weights)")
    parser.add_argument(
        "--ranges",
        choices=("phase", "layer", "module"),
        default="module",
        help="depth of the ranges (default: module)",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: torch's own choice)")
    parser.add_argument(
        "--repeats", type=int, metavar="N", help="bare repetitions (default: 3; short ones up to 9 in two seconds)"
    )
    parser.add_argument(
        "--top", type=int, metavar="N", help="kernels shown and counted per phase (default: 8 shown, all counted)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of weights and prompt (default: 0)")
    add_compile_options(parser)
    add_picture_formats(parser)
    add_nsight_options(parser)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status.

    0: ok; 2: an error that was said; 70: one that nobody foresaw; 130: interrupted.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller; its number must not go to the next file opened
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that can't show a character shows a question mark; it is no reason to fail.
            stream.reconfigure(errors="replace")
    parser = build_parser()
    try:
        words, target = split_target(sys.argv[1:] if argv is None else argv)
        args = parser.parse_args(words)
        args.target = target
        status = _run(parser, args)
        sys.stdout.flush()
        return status
    except KernelroofError as error:
        # Names and values in a message may hold line breaks or escapes; it is one line of text all the same.
        print(f"kernelroof: error: {plain(' '.join(str(error).splitlines()))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("kernelroof: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone; the interpreter must not fail on its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        place = f" at {error.filename}" if error.filename else ""
        refusal = plain(f"the system refused a file or the output{place} ({error.strerror or error})")
        print(f"kernelroof: error: {refusal}. Look at its space and rights, or choose another.", file=sys.stderr)
        return 2
    except MemoryError:
        print("kernelroof: error: this needs more memory than there is. Ask for less at a time.", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(
            f"kernelroof: error: this command needs the package {error.name}, which is not installed. "
            "Install kernelroof with its dependencies (pip install .).",
            file=sys.stderr,
        )
        return 2
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        print(f"kernelroof: error: {_unforeseen(error)}", file=sys.stderr)
        return UNFORESEEN


def _unforeseen(error: Exception) -> str:
    """One line on an error that nobody thought of, with the innermost line of this package."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "kernelroof" in frame.filename]
    where = f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    words = plain(" ".join(str(error).split()))[:300]
    return (
        f"unforeseen: {type(error).__name__}{where}: {words}. This is a fault of kernelroof, or a damaged file that it "
        f"does not recognise; {TRACEBACK}=1 shows all of it, for a report."
    )


def _run(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    if args.version:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"kernelroof {version('kernelroof')}")
        except PackageNotFoundError:
            print("kernelroof, run from its sources (not installed, so without a version)")
        return 0
    if args.command is None:
        parser.print_help()
        return 2
    return _dispatch(args)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"See `{self.prog} --help`.")


_COMMANDS = {
    "estimate": ("estimate_command", "run"),
    "profile": ("profile_command", "run"),
    "analyze": ("analyze_command", "run"),
    "diff": ("diff_command", "run"),
    "pictures": ("pictures_command", "run"),
    "report": ("report_command", "run"),
    "explain": ("explain_command", "run"),
    "trace": ("trace_command", "run"),
    "architectures": ("architectures_command", "run"),
    "doctor": ("doctor", "run"),
    "models": ("list_commands", "models"),
    "gpus": ("list_commands", "gpus"),
    "advise": ("advise_command", "run"),
    "textbook": ("textbook_command", "run"),
    "memory": ("memory_command", "run"),
    "batching": ("batching_command", "run"),
    "compare": ("compare_command", "run"),
    "sweep": ("sweep_command", "run"),
}
"""Command to the module in this room that runs it, and its function."""


def _dispatch(args: argparse.Namespace) -> int:
    import importlib

    module, function = _COMMANDS[args.command]
    status: int = getattr(importlib.import_module(f"kernelroof.profile.{module}"), function)(args)
    return status


if __name__ == "__main__":
    sys.exit(main())
