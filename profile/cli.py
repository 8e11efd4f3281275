"""The command line: options and dispatch only; each command's work is imported when it runs."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from kernelroof.models.errors import KernelroofError, UsageError
from kernelroof.profile.nsight_options import EPILOG as NSIGHT_EPILOG
from kernelroof.profile.nsight_options import add_nsight_options, split_target

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
  kernelroof estimate path/to/config.json --gpu l4 --json
  kernelroof estimate llama-3-8b --peak-tflops 312 --bandwidth-gbs 2039 --memory-gb 80"""

_PROFILE_EPILOG = """examples:
  kernelroof profile tiny-llama
  kernelroof profile tiny-qwen --batch 4 --prompt 256 --output 16 --out runs/qwen
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
    _add_workload(parser, model_option=True)


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
    _add_workload(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object for scripts")


def _add_profile(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "profile",
        help="run prefill and decode, measure every kernel, place it on the roofline",
        description="Run a model's prefill and decode here and place every kernel beside the estimate.",
        epilog=f"{_PROFILE_EPILOG}\n\n{NSIGHT_EPILOG}",
        usage="kernelroof profile [options] MODEL\n       kernelroof profile [options] [MODEL] -- PROGRAM [ARG ...]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_workload(parser, optional_model=True)
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
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="bare repetitions (default: 3)")
    parser.add_argument(
        "--top", type=int, metavar="N", help="kernels shown and counted per phase (default: 8 shown, all counted)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of weights and prompt (default: 0)")
    add_nsight_options(parser)


def _add_workload(parser: argparse.ArgumentParser, *, optional_model: bool = False, model_option: bool = False) -> None:
    what = "preset, folder with a config.json, config.json, or Hub id; families: llama, mistral, qwen2, qwen3"
    if model_option:
        parser.add_argument("--model", metavar="MODEL", help=f"whose estimate stands beside: {what}")
    else:
        parser.add_argument("model", metavar="MODEL", nargs="?" if optional_model else None, help=what)
    load = parser.add_argument_group("workload")
    load.add_argument("--batch", type=int, default=1, metavar="N", help="sequences (default: 1)")
    load.add_argument("--prompt", type=int, default=1024, metavar="N", help="prompt tokens (default: 1024)")
    load.add_argument("--output", type=int, default=32, metavar="N", help="decode steps (default: 32)")
    load.add_argument(
        "--dtype", metavar="D", help="float32, bfloat16 or float16; fp32, bf16, fp16 too (default: the model's)"
    )
    load.add_argument(
        "--weights-dtype", metavar="D", help="how the layers' linears are stored: --dtype (default), fp8, int8, int4"
    )
    load.add_argument("--kv-dtype", metavar="D", help="how K and V are stored: --dtype (default), fp8, int8, int4")
    load.add_argument("--attn", default="sdpa", metavar="A", help="sdpa, eager or flash_attention_2 (default: sdpa)")
    load.add_argument("--cache", default="dynamic", metavar="C", help="dynamic, static or ideal (default: dynamic)")
    rule = parser.add_argument_group("conventions (defaults: what Hugging Face executes)")
    rule.add_argument("--mask", default="auto", metavar="M", help="auto, causal or full (default: auto)")
    rule.add_argument(
        "--head", default="last", metavar="H", help="last or all: positions whose logits are computed (default: last)"
    )
    rule.add_argument(
        "--embedding", default="gathered", metavar="E", help="gathered (rows only) or streamed (whole table)"
    )
    rule.add_argument("--overhead", type=float, default=0.10, metavar="X", help="memory overhead share (default: 0.1)")
    gpu = parser.add_argument_group("device of the estimate")
    gpu.add_argument("--gpu", metavar="G", help="name in `kernelroof gpus`")
    gpu.add_argument("--peak-tflops", type=float, metavar="X", help="your own dense peak, TFLOP/s")
    gpu.add_argument("--bandwidth-gbs", type=float, metavar="X", help="your own memory bandwidth, GB/s (10^9)")
    gpu.add_argument("--memory-gb", type=float, metavar="X", help="your own memory, GB (10^9)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status (0 ok, 2 an error that was said, 130 interrupted)."""
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
        print(f"kernelroof: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("kernelroof: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone; the interpreter must not fail on its last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        print(f"kernelroof: error: the output can't be written ({error.strerror or error})", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(
            f"kernelroof: error: this command needs the package {error.name}, which is not installed. "
            "Install kernelroof with its dependencies (pip install .).",
            file=sys.stderr,
        )
        return 2


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


def _dispatch(args: argparse.Namespace) -> int:
    if args.command == "estimate":
        from kernelroof.profile import estimate_command

        return estimate_command.run(args)
    if args.command == "profile":
        from kernelroof.profile import profile_command

        return profile_command.run(args)
    if args.command == "analyze":
        from kernelroof.profile import analyze_command

        return analyze_command.run(args)
    if args.command == "architectures":
        from kernelroof.profile import architectures_command

        return architectures_command.run(args)
    if args.command == "doctor":
        from kernelroof.profile import doctor

        return doctor.run(args)
    from kernelroof.profile import list_commands

    return list_commands.models(args) if args.command == "models" else list_commands.gpus(args)


if __name__ == "__main__":
    sys.exit(main())
