"""Options of the commands that compare and decide: advise, memory, compare, sweep, batching."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from kernelroof.models.errors import UsageError
from kernelroof.profile.number_lists import MOST_NUMBERS, numbers
from kernelroof.profile.workload_options import add_workload

_ADVISE_EPILOG = """examples:
  kernelroof advise llama-3-8b --gpu a100-80gb
  kernelroof advise llama-3-8b --gpu h100-sxm --batch 32 --prompt 4096 --goal throughput
  kernelroof advise llama-3-8b --gpu l4 --draft qwen2.5-0.5b --drafted 5 --acceptance 0.8"""

_MEMORY_EPILOG = """examples:
  kernelroof memory llama-3-8b --gpu l4 --batch 8 --prompt 4096
  kernelroof memory llama-3-8b --gpu rtx-4080 --dtype float16 --tp 1,2 --nvme-gbs 12
  kernelroof memory --memory-gb 16 --reserve-gb 2                 which model sizes fit at each precision
  kernelroof memory --gpu h100-sxm --params-b 7                   what the storage tiers cost"""

_COMPARE_EPILOG = """examples:
  kernelroof compare llama-3-8b --gpu a100-80gb --gpu h100-sxm --gpu l40s
  kernelroof compare qwen2.5-7b --gpu l4 --gpu rtx-4090 --weights-dtype int4 --batch 8"""

_SWEEP_EPILOG = """examples:
  kernelroof sweep --models llama-3-8b --gpus a100-80gb,h100-sxm --batches 1,8,32,128 --prompts 512,2048,8192
  kernelroof sweep --models llama-3-8b,qwen2.5-7b --gpus h100-sxm --batches 1:256 --weights-dtypes bfloat16,int4 \\
      --out sweep.csv --heat tokens_per_s --picture sweep.png
  kernelroof sweep --gpus h100-sxm --batches 1:512:1 --fits --at-most tpot_ms=20 --top 1      the batch for 20 ms

Lists are separated by commas; 1:256 is every power of two from 1 to 256, 1:256:5 every fifth number."""

_BATCHING_EPILOG = """examples:
  kernelroof batching --lengths 200,100,30,80
  kernelroof batching llama-3-8b --gpu h100-sxm --lengths 200,100,30,80 --slots 32 --requests 512
  kernelroof batching llama-3-8b --gpu a100-80gb --long-prompt 8192 --chunks 256,512,2048"""


def add_decision_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the parsers of all of them."""
    _add_advise(commands)
    _add_memory(commands)
    _add_compare(commands)
    _add_sweep(commands)
    _add_batching(commands)
    textbook = commands.add_parser(
        "textbook", help="figures that texts quote, recomputed", description="Quoted figures, and ours beside them."
    )
    textbook.add_argument("--json", action="store_true", help="print one JSON array")


def names(text: str) -> list[str]:
    """Words of a list, in order, without repetitions.

    Raises:
        UsageError: no word in it.
    """
    found = list(dict.fromkeys(word for part in text.split(",") if (word := part.strip())))
    if not found:
        raise UsageError(f"{text!r} is an empty list", "Give names, separated by commas.")
    return found


def new_command(commands: argparse._SubParsersAction[Any], name: str, help_: str, what: str, epilog: str) -> Any:
    """A command with its line in the list, its description, and examples kept as they are written."""
    return commands.add_parser(
        name, help=help_, description=what, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def _list_option(parser: Any, flag: str, kind: Callable[[str], Any], default: str | None, what: str) -> None:
    shown = f" (default: {default})" if default else ""
    parser.add_argument(
        flag, type=kind, default=kind(default) if default else None, metavar="LIST", help=f"{what}{shown}"
    )


def _add_advise(commands: argparse._SubParsersAction[Any]) -> None:
    parser = new_command(
        commands,
        "advise",
        "what would help this model on this GPU, and by how much",
        "Every lever with the effect that the estimate computes, the term that shrinks, and the limit it runs into.",
        _ADVISE_EPILOG,
    )
    add_workload(parser)
    parser.add_argument(
        "--goal",
        choices=("latency", "throughput", "ttft", "memory"),
        help="what to sort by (default: latency, or memory where the model does not fit)",
    )
    guess = parser.add_argument_group("what the estimate can't know")
    _list_option(guess, "--lengths", _lengths, "200,100,30,80", "output lengths, for continuous batching")
    guess.add_argument("--drafted", type=int, default=4, metavar="N", help="tokens drafted per pass (default: 4)")
    guess.add_argument(
        "--acceptance", type=float, default=0.7, metavar="P", help="probability that a draft is right (default: 0.7)"
    )
    guess.add_argument(
        "--draft", metavar="MODEL", help="model that drafts, on the same GPU (default: drafts cost nothing)"
    )
    guess.add_argument(
        "--shared-prompt",
        type=float,
        default=0.5,
        metavar="X",
        help="share of the prompt that is cached (default: 0.5)",
    )
    guess.add_argument("--chunk", type=int, default=512, metavar="N", help="prefill chunk in tokens (default: 512)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_memory(commands: argparse._SubParsersAction[Any]) -> None:
    parser = new_command(
        commands,
        "memory",
        "what fits, what does not, and where the rest can go",
        "Memory by part, the largest batch and context, splits over GPUs, offload, paged caches; "
        "without MODEL: which sizes fit a GPU.",
        _MEMORY_EPILOG,
    )
    add_workload(parser, optional_model=True)
    more = parser.add_argument_group("several GPUs, and tiers of storage")
    _list_option(more, "--tp", numbers, "1:8", "tensor-parallel sizes")
    _list_option(more, "--pp", numbers, "1", "pipeline-parallel sizes")
    more.add_argument("--link-gbs", type=float, metavar="X", help="GPU to GPU, one way, GB/s (default: the GPU's own)")
    more.add_argument("--host-gbs", type=float, metavar="X", help="host memory, GB/s (default: 100)")
    more.add_argument("--nvme-gbs", type=float, metavar="X", help="NVMe drive, GB/s (default: 7)")
    more.add_argument("--disk-gbs", type=float, metavar="X", help="hard disk, GB/s (default: 0.2)")
    _list_option(more, "--blocks", numbers, "16,32,64,256", "tokens per block of a paged cache")
    alone = parser.add_argument_group("without a model")
    alone.add_argument("--params-b", type=float, metavar="X", help="parameters in billions, read from each tier")
    alone.add_argument("--reserve-gb", type=float, default=0.0, metavar="X", help="memory kept free (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_compare(commands: argparse._SubParsersAction[Any]) -> None:
    parser = new_command(
        commands,
        "compare",
        "one workload on several GPUs",
        "What one workload needs and how fast it can be at best, GPU by GPU.",
        _COMPARE_EPILOG,
    )
    add_workload(parser, gpus=True)
    parser.add_argument("--json", action="store_true", help="print one JSON array")


def _add_sweep(commands: argparse._SubParsersAction[Any]) -> None:
    parser = new_command(
        commands,
        "sweep",
        "every combination of models, GPUs, sizes and formats",
        "Estimates of every combination, as one table and a heat map.",
        _SWEEP_EPILOG,
    )
    _list_option(parser, "--models", names, "llama-3-8b", "presets, config.json files or Hub ids")
    _list_option(parser, "--gpus", names, "h100-sxm", "names in `kernelroof gpus`")
    _list_option(parser, "--batches", numbers, "1:128", "sequences")
    _list_option(parser, "--prompts", numbers, "1024", "prompt tokens")
    _list_option(parser, "--outputs", numbers, "128", "decode steps")
    _list_option(parser, "--dtypes", names, None, "formats that compute (default: each model's own)")
    _list_option(parser, "--weights-dtypes", names, None, "formats of the layers' matrices (default: --dtypes)")
    _list_option(parser, "--kv-dtypes", names, None, "formats of the cache (default: --dtypes)")
    parser.add_argument("--cache", default="dynamic", metavar="C", help="dynamic, static or ideal (default: dynamic)")
    parser.add_argument("--attn", default="sdpa", metavar="A", help="sdpa, eager or flash_attention_2 (default: sdpa)")
    parser.add_argument(
        "--overhead", type=float, default=0.10, metavar="X", help="memory overhead share (default: 0.1)"
    )
    parser.add_argument("--fits", action="store_true", help="keep only what fits the GPU's memory")
    parser.add_argument(
        "--at-most",
        type=_limit,
        action="append",
        default=[],
        metavar="COLUMN=X",
        help="keep only rows within a limit, such as tpot_ms=20; may be repeated",
    )
    parser.add_argument(
        "--sort",
        default="tokens_per_s",
        metavar="COLUMN",
        help="best first: tokens_per_s (default), ttft_ms, tpot_ms, total_bytes, decode_flop_per_byte ...",
    )
    parser.add_argument("--top", type=int, default=12, metavar="N", help="rows printed (default: 12)")
    parser.add_argument("--out", metavar="FILE", help="write all rows: .csv, .csv.gz or .parquet")
    parser.add_argument("--picture", metavar="FILE", help="write a heat map: .png, .svg or .pdf")
    parser.add_argument(
        "--heat", default="tokens_per_s", metavar="COLUMN", help="what its colour shows (default: tokens_per_s)"
    )
    _list_option(parser, "--axes", names, None, "its two axes (default: the two lists with most values)")


def _add_batching(commands: argparse._SubParsersAction[Any]) -> None:
    parser = new_command(
        commands,
        "batching",
        "static against continuous batching, and chunked prefill",
        "How many slots of a batch do useful work under each policy; with a model and a GPU also how long it takes, "
        "and how long a prompt holds up the others.",
        _BATCHING_EPILOG,
    )
    add_workload(parser, optional_model=True)
    sizes = parser.add_argument_group("requests")
    _list_option(sizes, "--lengths", _lengths, "200,100,30,80", "output tokens of the requests, in order of arrival")
    sizes.add_argument("--slots", type=int, metavar="N", help="slots of the batch (default: as many as --lengths)")
    sizes.add_argument(
        "--requests", type=int, metavar="N", help="repeat the lengths up to so many (default: 16 times as many)"
    )
    sizes.add_argument(
        "--long-prompt", type=int, metavar="N", help="prompt that is chunked (default: 8192, or all positions)"
    )
    _list_option(sizes, "--chunks", numbers, "256,512,1024,2048", "chunk sizes in tokens")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _limit(text: str) -> tuple[str, float]:
    """A column and the largest value that is kept."""
    column, _, value = text.partition("=")
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not column or math.isnan(limit):
        raise UsageError(f"--at-most {text!r} is no limit", "Write COLUMN=NUMBER, such as tpot_ms=20.")
    return column, limit


def _lengths(text: str) -> list[int]:
    """Like `numbers`, but the same length may come again."""
    found: list[int] = []
    for part in text.split(","):
        found += numbers(part)
        if len(found) > MOST_NUMBERS:
            raise UsageError("a list of output lengths is too long", f"Give {MOST_NUMBERS:,} numbers at most.")
    return found
