"""The traced estimate as a record: for architectures without a closed form, or to see what it leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernelroof.models.kinds import ROOT_MODULE
from kernelroof.models.ops import TracedOp
from kernelroof.models.trace import Trace, trace


def traced_record(
    config: Mapping[str, Any],
    name: str,
    *,
    batch: int,
    prompt: int,
    output: int,
    dtype: str,
    attn: str,
    cache: str,
    head: str,
    flop_s: float | None = None,
    byte_s: float | None = None,
) -> dict[str, Any]:
    """Trace a prefill and the first and last decode step on the meta device.

    A phase's `flops` are matrix products and attention, `scan_flops` products of recurrences without a
    weight, `elementwise_flops` the rest; `bytes` are the model's inputs, weights and cache, each once;
    `executed_bytes` every op's own reads and writes. `ideal_ms` is of the phase as a whole,
    `op_by_op_ideal_ms` the sum over its ops, which do not overlap.

    Raises:
        ConfigError, DriverError: the model can't be built or traced; the message says why.
    """
    last = output - 1
    found = trace(
        dict(config),
        batch=batch,
        prompt=prompt,
        output=output,
        dtype=dtype,
        attn=attn,
        cache=cache,
        head=head,
        steps=sorted({0, last}),
    )
    ops = {
        "prefill": [op for op in found.ops if op.phase == "prefill"],
        "decode": [op for op in found.ops if op.phase == "decode" and op.step == 0],
        "last_step": [op for op in found.ops if op.phase == "decode" and op.step == last],
    }
    steps = {"prefill": ("prefill", 0), "decode": ("decode", 0), "last_step": ("decode", last)}
    return {
        "model": name,
        "model_type": config.get("model_type"),
        "source": "traced",
        "parameters": found.parameters,
        "weight_bytes": found.parameter_bytes,
        "kv_bytes": found.cache_bytes,
        "workload": {
            "batch": batch,
            "prompt": prompt,
            "output": output,
            "dtype": dtype,
            "attn": found.attn,
            "cache": found.cache_kind,
            "head": found.head,
        },
        **{p: _phase(ops[p], _once(found, *steps[p]), flop_s, byte_s) for p in ops},
    }


def _once(found: Trace, phase: str, step: int) -> float | None:
    """Bytes of the whole model's inputs, weights and cache, once each; None where its calls were not seen."""
    io = found.module_io.get((phase, step, ROOT_MODULE))
    return None if io is None else io.weight_bytes + io.kv_read_bytes


def _phase(ops: Iterable[TracedOp], once: float | None, flop_s: float | None, byte_s: float | None) -> dict[str, Any]:
    flops = {"matmul": 0, "attention": 0, "scan": 0, "elementwise": 0, "none": 0}
    executed = launches = 0
    each_s = 0.0
    for op in ops:
        flops[op.flops_kind] = flops.get(op.flops_kind, 0) + op.flops
        moved = op.read_bytes + op.write_bytes
        executed += moved
        launches += bool(moved or op.flops)
        if flop_s and byte_s:
            each_s += max(op.flops / flop_s, moved / byte_s)
    products = flops["matmul"] + flops["attention"]
    phase: dict[str, Any] = {
        "flops": products,
        "scan_flops": flops["scan"],
        "elementwise_flops": flops["elementwise"],
        "bytes": once,
        "executed_bytes": executed,
        "kernels": launches,
        "intensity": products / once if once else None,
        "bound": None,
        "ideal_ms": None,
        "op_by_op_ideal_ms": None,
    }
    if flop_s and byte_s and once:
        compute_s, memory_s = (products + flops["scan"]) / flop_s, once / byte_s
        phase["bound"] = "compute" if compute_s >= memory_s else "memory"
        phase["ideal_ms"] = 1e3 * max(compute_s, memory_s)
        phase["op_by_op_ideal_ms"] = 1e3 * each_s
    return phase
