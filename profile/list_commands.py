"""`kernelroof models` and `kernelroof gpus`: what the package knows, as tables or JSON."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from kernelroof.models.estimate import costs
from kernelroof.models.presets import load_config, preset_names
from kernelroof.models.spec import read_spec
from kernelroof.models.workload import make_workload
from kernelroof.roofline.units import fixed, quantity


def models(args: argparse.Namespace) -> int:
    """Print the presets with the sizes that follow from their configs."""
    rows: list[dict[str, Any]] = []
    for name in preset_names():
        spec = read_spec(load_config(name), name)
        cost = costs(spec, make_workload(spec, prompt=1, output=1))
        rows.append(
            {
                "name": name,
                "model_type": spec.model_type,
                "parameters": cost.parameters,
                "layers": spec.layers,
                "hidden": spec.hidden,
                "heads": spec.heads,
                "kv_heads": spec.kv_heads,
                "vocab": spec.vocab,
                "tied": spec.tied,
                "dtype": spec.dtype,
                "weight_bytes": cost.weight_bytes,
                "kv_bytes_per_token": cost.kv_bytes_per_token,
                "max_positions": spec.max_positions,
            }
        )
    if args.json:
        import json

        print(json.dumps(rows, indent=2))
        return 0
    print(
        f"{'preset':<14}{'parameters':>14} {'layers':>7}{'hidden':>7}{'heads/KV':>9}  "
        f"{'dtype':<9}{'weights':>10}{'KV/token':>10}{'positions':>10}"
    )
    for r in rows:
        heads = f"{r['heads']}/{r['kv_heads']}"
        weights, kv = quantity(r["weight_bytes"], "B"), quantity(r["kv_bytes_per_token"], "B")
        print(
            f"{r['name']:<14}{r['parameters']:>14,} {r['layers']:>7}{r['hidden']:>7}{heads:>9}  "
            f"{r['dtype']:<9}{weights:>10}{kv:>10}{r['max_positions']:>10}"
        )
    print(
        "Weights are random by default; --weights PATH loads a checkpoint. Any config.json of a known family works too."
    )
    return 0


def gpus(args: argparse.Namespace) -> int:
    """Print the GPU table, or one GPU in full."""
    from kernelroof.roofline.gpus import find_gpu, list_gpus

    table = [find_gpu(args.gpu)] if args.gpu is not None else list_gpus()
    if args.json:
        import json

        print(json.dumps([gpu._asdict() for gpu in table], indent=2))
        return 0
    if args.gpu is not None:
        for field, value in table[0]._asdict().items():
            text = "–" if value is None else ", ".join(value) if isinstance(value, tuple) else str(value)
            print("\n".join(textwrap.wrap(text, 78, initial_indent=f"{field:<15} ", subsequent_indent=" " * 16)))
        return 0
    print(
        "dense peaks in TFLOP/s (INT8: TOP/s), FP32 accumulation; 16-bit is bf16, or fp16 where there is none;\n"
        "GB = 10^9 B; `kernelroof gpus NAME` shows a GPU's source"
    )
    print(f"{'gpu':<25}{'product':<34}{'16-bit':>7}{'fp8':>7}{'int8':>7}{'fp32':>7}{'GB/s':>7}{'GB':>5}{'ridge':>7}")
    for gpu in table:
        half = gpu.bf16_flop_s or gpu.fp16_flop_s
        cells = [_tera(half), _tera(gpu.fp8_flop_s), _tera(gpu.int8_ops_s), _tera(gpu.fp32_flop_s)]
        ridge = f"{half / gpu.byte_s:.1f}" if half else "–"
        print(
            f"{gpu.key:<25}{gpu.product[:33]:<34}{cells[0]:>7}{cells[1]:>7}{cells[2]:>7}{cells[3]:>7}"
            f"{gpu.byte_s / 1e9:>7.0f}{gpu.memory_bytes / 1e9:>5.0f}{ridge:>7}"
        )
    return 0


def _tera(value: float | None) -> str:
    return "–" if value is None else fixed(value / 1e12, 4 if value >= 1e14 else 3)
