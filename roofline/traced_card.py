"""The traced estimate as plain text."""

from __future__ import annotations

import textwrap
from typing import Any

from kernelroof.roofline.text_table import text_table
from kernelroof.roofline.units import fixed, quantity, seconds

_PHASES = ("prefill", "decode", "last_step")


def traced_card(record: dict[str, Any]) -> str:
    """Render a record of `kernelroof.models.traced_record` for a terminal of 100 columns."""
    load, device = record["workload"], record["device"]
    lines = [
        f"{record['model']}: {record['parameters']:,} parameters ({record['model_type']}), traced estimate",
        f"batch {load['batch']}, prompt {load['prompt']}, output {load['output']}, {load['dtype']}, "
        f"{load['cache']} cache, {load['attn']} attention, head on {load['head']} positions",
    ]
    if device:
        lines += textwrap.wrap(f"{device['name']} ({device['origin']})", 96)
    lines += [
        "",
        f"weights  {quantity(record['weight_bytes'], 'B'):>12}",
        f"cache    {quantity(record['kv_bytes'], 'B'):>12}   after all steps, recurrent states in it",
        "",
        _table(record),
        "",
        "FLOPs: matrix products and attention as they run, FMA = 2. Bytes: weights and cache once each; every op's own",
        "reads and writes are more. Op by op: kernels do not overlap, so their ideal times add up.",
    ]
    return "\n".join(lines)


def _table(record: dict[str, Any]) -> str:
    phases = [record[p] for p in _PHASES]
    rows = [["FLOPs", *(quantity(p["flops"], "FLOP") for p in phases)]]
    if any(p["scan_flops"] for p in phases):
        rows.append(["  recurrences", *(quantity(p["scan_flops"], "FLOP") for p in phases)])
    rows += [
        ["  elementwise", *(quantity(p["elementwise_flops"], "FLOP") for p in phases)],
        ["bytes: weights and cache once", *(quantity(p["bytes"], "B") for p in phases)],
        ["  every op's own", *(quantity(p["executed_bytes"], "B") for p in phases)],
        ["kernels", *(f"{p['kernels']:,}" for p in phases)],
        ["intensity", *(_intensity(p["intensity"]) for p in phases)],
    ]
    if record["device"]:
        rows += [
            ["bound", *(p["bound"] or "–" for p in phases)],
            ["ideal time", *(_time(p["ideal_ms"]) for p in phases)],
            ["  op by op", *(_time(p["op_by_op_ideal_ms"]) for p in phases)],
        ]
    return text_table(["", "prefill", "first decode step", "last decode step"], rows, left=(0,))


def _intensity(value: float | None) -> str:
    return "–" if value is None else f"{fixed(value)} FLOP/B"


def _time(value_ms: float | None) -> str:
    return "–" if value_ms is None else seconds(value_ms / 1e3)
