"""The estimate as one flat, JSON-ready record: what `estimate --json` prints and a run keeps."""

from __future__ import annotations

from typing import Any

from kernelroof.models.describe import (
    architecture,
    conventions_of_kinds,
    experts,
    kv_without_windows,
    layers_by_kind,
    tower_record,
)
from kernelroof.models.dtypes import BITS
from kernelroof.models.estimate import Costs, PhaseCost, costs, ideal_times
from kernelroof.models.spec import ModelSpec
from kernelroof.models.workload import Workload, conventions


def estimate_record(
    spec: ModelSpec,
    workload: Workload,
    *,
    device: str | None = None,
    flop_s: float | None = None,
    byte_s: float | None = None,
    memory_bytes: int | None = None,
    origin: str | None = None,
) -> dict[str, Any]:
    """Estimate one workload; without a device the times, bounds and `fits` are null.

    `flop_s` (FLOP/s) and `byte_s` (B/s) are the device's peaks for the dtype that computes;
    `memory_bytes` is its capacity; `origin` says where the three come from.
    """
    cost = costs(spec, workload)
    ridge = flop_s / byte_s if flop_s and byte_s else None
    record: dict[str, Any] = {
        "model": spec.name,
        "model_type": spec.model_type,
        "source": "closed-form",
        "architecture": architecture(spec),
        "layers_by_kind": layers_by_kind(spec),
        "assumptions": list(spec.notes),
        "parameters": cost.parameters,
        "active_parameters": cost.active_parameters,
        "experts": experts(spec, workload.batch),
        "tower": tower_record(spec, BITS[workload.dtype] // 8),
        "matmul_parameters": cost.matmul_parameters,
        "workload": {
            field: getattr(workload, field)
            for field in ("batch", "prompt", "output", "dtype", "weights_dtype", "kv_dtype", "attn", "cache")
        },
        "device": {
            "name": device,
            "peak_flop_s": flop_s,
            "bandwidth_byte_s": byte_s,
            "memory_bytes": memory_bytes,
            "origin": origin,
        },
        "conventions": {**conventions(workload), **conventions_of_kinds(spec)},
        "weight_bytes": cost.weight_bytes,
        "kv_bytes_per_token": cost.kv_bytes_per_token,
        "state_bytes_per_sequence": cost.state_bytes_per_sequence,
        "kv_bytes": cost.kv_bytes,
        "kv_bytes_without_windows": kv_without_windows(cost, workload.batch, workload.prompt + workload.output),
        "peak_activation_bytes": cost.peak_activation_bytes,
        "overhead_share": workload.overhead,
        "total_bytes": round(cost.total_bytes),
        "fits": None if memory_bytes is None else bool(cost.total_bytes <= memory_bytes),
        "ridge_flop_per_byte": ridge,
    }
    prefill = _phase(cost.prefill, flop_s, byte_s)
    prefill["tokens"] = workload.batch * workload.prompt
    prefill["rule_of_thumb_flops"] = 2 * cost.active_parameters * workload.batch * workload.prompt
    decode = _phase(cost.first_step, flop_s, byte_s)
    decode["context"] = workload.prompt + workload.output if workload.cache == "static" else workload.prompt + 1
    decode["steps"] = workload.output
    decode["rule_of_thumb_flops"] = 2 * cost.active_parameters * workload.batch
    total = _phase(cost.decode, flop_s, byte_s)
    decode.update({f"total_{field}": total[field] for field in ("flops", "scan_flops", "bytes", "intensity", *_PARTS)})
    decode["total_ideal_ms"] = None
    record["prefill"] = prefill
    record["decode"] = decode
    record["ttft_ms"] = prefill["ideal_ms"]
    record["tpot_ms"] = None
    record["tokens_per_s"] = None
    if flop_s and byte_s:
        _add_times(record, cost, workload, flop_s, byte_s)
    return record


_PARTS = (
    "weight_bytes",
    "kv_read_bytes",
    "kv_write_bytes",
    "activation_bytes",
    "cache_copy_bytes",
    "bytes_without_elementwise",
)


def _phase(cost: PhaseCost, flop_s: float | None, byte_s: float | None) -> dict[str, Any]:
    """One phase: unavoidable traffic first, then what this implementation moves besides, elementwise ops left out."""
    executed = cost.bytes + cost.kv_write_bytes + cost.activation_bytes + cost.cache_copy_bytes
    phase: dict[str, Any] = {
        "flops": cost.flops,
        "scan_flops": cost.scan_flops,
        "bytes": cost.bytes,
        "intensity": (cost.flops + cost.scan_flops) / cost.bytes,
        "bound": None,
        "ideal_ms": None,
        "weight_bytes": cost.weight_bytes,
        "kv_read_bytes": cost.kv_read_bytes,
        "kv_write_bytes": cost.kv_write_bytes,
        "activation_bytes": cost.activation_bytes,
        "cache_copy_bytes": cost.cache_copy_bytes,
        "bytes_without_elementwise": executed,
        "ideal_without_elementwise_ms": None,
    }
    if flop_s and byte_s:
        compute_s, memory_s = (cost.flops + cost.scan_flops) / flop_s, cost.bytes / byte_s
        phase["bound"] = "compute" if compute_s >= memory_s else "memory"
        phase["ideal_ms"] = 1e3 * max(compute_s, memory_s)
        phase["ideal_without_elementwise_ms"] = 1e3 * max(compute_s, executed / byte_s)
    return phase


def _add_times(record: dict[str, Any], cost: Costs, workload: Workload, flop_s: float, byte_s: float) -> None:
    times = ideal_times(cost, flop_s, byte_s)
    record["ttft_ms"] = 1e3 * times.prefill_s
    record["tpot_ms"] = 1e3 * times.first_step_s
    record["decode"]["total_ideal_ms"] = 1e3 * times.decode_s
    record["tokens_per_s"] = workload.batch / times.first_step_s
