"""The driver's own command line: for nsys and ncu, which start it, and for use by hand."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelroof.models.errors import OutputError, UsageError
from kernelroof.profile.driver_spec import DriverSpec
from kernelroof.profile.ranges import DEPTHS

_WHOLE = ("batch", "prompt", "output", "threads", "seed", "warmup", "repeats", "most_repeats")

_EPILOG = """examples:
  python -m kernelroof.profile.driver --model tiny-llama --prompt 256 --output 16
  python -m kernelroof.profile.driver --spec spec.json --mode bare --out bare.json
  nsys profile -t cuda,nvtx -c cudaProfilerApi -o timeline \\
      python -m kernelroof.profile.driver --spec spec.json --mode ranges --out times.json

Mode bare times --repeats passes with no ranges: the truth about wall time. Mode ranges runs one pass
under NVTX ranges (prefill, decode, step0, ..., module paths), inside cudaProfilerStart and Stop.
--count-plan plan.json, {"windows": [["decode", 0, "model.layers.0.mlp"], ...]}, does the same with the
capture open only around those module calls (ncu --profile-from-start off)."""


def build_parser() -> argparse.ArgumentParser:
    """The options of `python -m kernelroof.profile.driver`."""
    parser = argparse.ArgumentParser(
        prog="python -m kernelroof.profile.driver",
        description="Run one model's prefill and decode, bare or under NVTX ranges; prints the times as JSON.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--spec", metavar="FILE", help="JSON of all that the run depends on")
    what.add_argument("--model", metavar="MODEL", help="preset, folder or config.json; sizes as below")
    parser.add_argument("--mode", choices=("bare", "ranges"), default="bare", help="default: bare")
    parser.add_argument(
        "--count-plan", metavar="FILE", help="open the capture only around the module calls that this JSON names"
    )
    parser.add_argument("--out", metavar="FILE", help="write the times there instead of printing them")
    by_hand = parser.add_argument_group("with --model (absent: the default)")
    for name, default in DriverSpec.__dataclass_fields__.items():
        if name == "config":
            continue
        kind = int if name in _WHOLE else str
        shown = default.default if default.default is not None else "none"
        by_hand.add_argument(
            f"--{name.replace('_', '-')}",
            type=kind,
            default=argparse.SUPPRESS,
            choices=DEPTHS if name == "depth" else None,
            help=f"default: {shown}",
        )
    return parser


def read_spec_options(args: argparse.Namespace) -> DriverSpec:
    """The spec that parsed options stand for.

    Raises:
        UsageError: --spec together with an option that it already holds.
        OutputError, DriverError, UnknownModelError: the spec or the model can't be read.
    """
    given = {k: v for k, v in vars(args).items() if k not in ("spec", "model", "mode", "out", "count_plan")}
    if args.spec is None:
        from kernelroof.models.presets import load_config

        return DriverSpec(config=load_config(args.model), **given)
    if given:
        raise UsageError(f"--spec already says --{' --'.join(given)}", "Change the spec, or use --model.")
    try:
        return DriverSpec.from_json(Path(args.spec).read_text(encoding="utf-8"))
    except OSError as error:
        raise OutputError(f"{args.spec} can't be read ({error.strerror})") from error
