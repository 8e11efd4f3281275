"""Options that many commands share: the model, the workload, its conventions, the device of the estimate."""

from __future__ import annotations

import argparse
from typing import Any

from kernelroof.profile.number_lists import numbers_of


def add_workload(
    parser: argparse.ArgumentParser,
    *,
    optional_model: bool = False,
    model_option: bool = False,
    gpus: bool = False,
    lists: bool = False,
) -> None:
    """Add MODEL (or --model), the workload, its conventions and the device.

    gpus: --gpu may be given again and again, and own figures may not.
    lists: --batch and --prompt take several values, and are lists.
    """
    what = "preset, folder with a config.json, config.json, or Hub id; families: llama, mistral, qwen2, qwen3"
    if model_option:
        parser.add_argument("--model", metavar="MODEL", help=f"whose estimate stands beside: {what}")
    else:
        parser.add_argument("model", metavar="MODEL", nargs="?" if optional_model else None, help=what)
    load = parser.add_argument_group("workload")
    for option, default, what in (("--batch", "1", "sequences"), ("--prompt", "1024", "prompt tokens")):
        kind: Any = numbers_of(option) if lists else int
        metavar = "N,N" if lists else "N"
        load.add_argument(option, type=kind, default=default, metavar=metavar, help=f"{what} (default: {default})")
    load.add_argument("--output", type=int, default=32, metavar="N", help="decode steps (default: 32)")
    load.add_argument(
        "--dtype", metavar="D", help="float32, bfloat16 or float16; fp32, bf16, fp16 too (default: the model's)"
    )
    load.add_argument(
        "--weights-dtype",
        metavar="D",
        help="how the layers' linears are stored: a quantised checkpoint's own format, else --dtype (default); fp8, "
        "fp8-block, w8a8, int8, int4 (bits alone), int4-g128, gptq-int4-g128, awq, nf4, mxfp4, nvfp4, q4_k_m, bpw:4.85 "
        "...",
    )
    load.add_argument(
        "--kv-dtype",
        metavar="D",
        help="how K and V are stored: --dtype (default), fp8, fp8-head, int8, int4, nvfp4, q8_0, q4_0 ...",
    )
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
    if gpus:
        gpu.add_argument(
            "--gpu", metavar="G", action="append", required=True, help="name in `kernelroof gpus`; give several"
        )
        return
    gpu.add_argument("--gpu", metavar="G", help="name in `kernelroof gpus`")
    gpu.add_argument("--peak-tflops", type=float, metavar="X", help="your own dense peak, TFLOP/s")
    gpu.add_argument(
        "--quantised-tflops", type=float, metavar="X", help="your own dense peak of quantised products (fp8, w8a8, fp4)"
    )
    gpu.add_argument("--bandwidth-gbs", type=float, metavar="X", help="your own memory bandwidth, GB/s (10^9)")
    gpu.add_argument("--memory-gb", type=float, metavar="X", help="your own memory, GB (10^9)")
