"""The estimate as one flat, JSON-ready record: what `estimate --json` prints and a run keeps."""

from __future__ import annotations

from collections.abc import Mapping
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
from kernelroof.models.estimate import Costs, PhaseCost, compute_time, costs, ideal_times, quantised_peak
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
    quantised_peaks: Mapping[str, float] | None = None,
    checkpoint: Mapping[str, Any] | None = None,
    gpu_key: str | None = None,
) -> dict[str, Any]:
    """Estimate one workload; without a device the times, bounds and `fits` are null.

    `flop_s` (FLOP/s) and `byte_s` (B/s) are the device's peaks for the dtype that computes;
    `memory_bytes` is its capacity; `origin` says where the three come from. `quantised_peaks` are
    peaks (FLOP/s) of products of quantised operands by class (fp8, int8, fp4); one that is missing
    means that such weights are unpacked and multiplied at `flop_s`. `checkpoint`: what the files say
    (`kernelroof.models.checkpoint`). With `gpu_key`, a key of the GPU table, there are expected times
    beside the ideal ones, where kernels of that GPU were measured.
    """
    cost = costs(spec, workload)
    known = quantised_peaks or {}
    peaks = {kind: known[kind] for kind, _ in cost.quantised if kind in known}
    apart = quantised_peak(cost.quantised, peaks, flop_s) if flop_s else None
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
            "quantised_peaks": peaks,
        },
        "conventions": {
            **conventions(spec, workload, cost.quantised, flop_s, peaks),
            **conventions_of_kinds(spec),
        },
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
    prefill = _phase(cost.prefill, flop_s, byte_s, apart)
    prefill["tokens"] = workload.batch * workload.prompt
    prefill["rule_of_thumb_flops"] = 2 * cost.active_parameters * workload.batch * workload.prompt
    decode = _phase(cost.first_step, flop_s, byte_s, apart)
    decode["context"] = workload.prompt + workload.output if workload.cache == "static" else workload.prompt + 1
    decode["steps"] = workload.output
    decode["rule_of_thumb_flops"] = 2 * cost.active_parameters * workload.batch
    total = _phase(cost.decode, flop_s, byte_s, apart)
    decode.update({f"total_{field}": total[field] for field in ("flops", "scan_flops", "bytes", "intensity", *_PARTS)})
    decode["total_ideal_ms"] = None
    record["prefill"] = prefill
    record["decode"] = decode
    record["ttft_ms"] = prefill["ideal_ms"]
    record["tpot_ms"] = None
    record["tokens_per_s"] = None
    for phase in (prefill, decode):
        phase.update(dict.fromkeys(_EXPECTED))
    record["expected"] = {"known": False, "reason": "no device given"}
    record["host"] = None
    if flop_s and byte_s:
        _add_times(record, cost, workload, flop_s, byte_s, apart)
        _add_expected(record, spec, workload, gpu_key, flop_s, byte_s, quantised_peaks or {})
    if checkpoint is not None:
        record["checkpoint"] = dict(checkpoint)
    return record


_EXPECTED = ("expected_ms", "expected_low_ms", "expected_high_ms")
_PARTS = (
    "weight_bytes",
    "kv_read_bytes",
    "kv_write_bytes",
    "activation_bytes",
    "cache_copy_bytes",
    "bytes_without_elementwise",
)


def _phase(cost: PhaseCost, flop_s: float | None, byte_s: float | None, apart: float | None) -> dict[str, Any]:
    """One phase: unavoidable traffic first, then what this implementation moves besides, elementwise ops left out."""
    executed = cost.executed_bytes
    phase: dict[str, Any] = {
        "flops": cost.flops,
        "quantised_flops": cost.quantised_flops,
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
        compute_s, memory_s = compute_time(cost, flop_s, apart), cost.bytes / byte_s
        phase["bound"] = "compute" if compute_s >= memory_s else "memory"
        phase["ideal_ms"] = 1e3 * max(compute_s, memory_s)
        phase["ideal_without_elementwise_ms"] = 1e3 * max(compute_s, executed / byte_s)
    return phase


def _add_times(
    record: dict[str, Any], cost: Costs, workload: Workload, flop_s: float, byte_s: float, apart: float | None
) -> None:
    times = ideal_times(cost, flop_s, byte_s, quantised_flop_s=apart)
    record["ttft_ms"] = 1e3 * times.prefill_s
    record["tpot_ms"] = 1e3 * times.first_step_s
    record["decode"]["total_ideal_ms"] = 1e3 * times.decode_s
    record["tokens_per_s"] = workload.batch / times.first_step_s


def _add_expected(
    record: dict[str, Any],
    spec: ModelSpec,
    workload: Workload,
    gpu_key: str | None,
    flop_s: float,
    byte_s: float,
    peaks: Mapping[str, float],
) -> None:
    """What measured kernels make of it, and the least time of the host; null with a reason where nothing is known."""
    from kernelroof.models.efficiency import STATEMENT
    from kernelroof.models.expected import expected_phase, launches_per_step
    from kernelroof.models.host_floor import host_floor

    launches = launches_per_step(spec)
    floor = host_floor(launches)
    record["host"] = {
        "launches_per_step": launches,
        "floor_ms": 1e3 * floor.seconds,
        "floor_low_ms": 1e3 * floor.low_s,
        "floor_high_ms": 1e3 * floor.high_s,
        "source": floor.source,
    }
    if gpu_key is None:
        record["expected"] = {"known": False, "reason": "kernels were measured on GPUs of the table only"}
        return
    found = {
        phase: expected_phase(spec, workload, gpu_key, phase, flop_s=flop_s, byte_s=byte_s, quantised_peaks=peaks)
        for phase in ("prefill", "decode")
    }
    if None in found.values():
        reason = f"no kernels were measured on {gpu_key} or another GPU of its architecture"
        record["expected"] = {"known": False, "reason": reason}
        return
    reasons: list[str] = []
    for phase, time in found.items():
        assert time is not None
        values = (1e3 * time.seconds, 1e3 * time.low_s, 1e3 * time.high_s)
        record[phase].update(zip(_EXPECTED, values, strict=True))
        record[phase]["expected_measured_share"] = time.measured_share
        reasons += [r for r in time.reasons if r not in reasons]
    record["expected"] = {
        "known": True,
        "transferred": any(time.transferred for time in found.values() if time),
        "not_measured": reasons,
        "statement": STATEMENT,
    }
