"""`kernelroof compare`: one workload on several GPUs."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from kernelroof.models.capacity import compute_bound_batch, largest_batch
from kernelroof.models.presets import display_name, load_config
from kernelroof.models.record import estimate_record
from kernelroof.models.spec import read_spec
from kernelroof.profile.estimate_command import workload_from
from kernelroof.roofline.card import mostly_measured
from kernelroof.roofline.gpus import ceilings_for, find_gpu, quantised_peaks
from kernelroof.roofline.text_table import WIDTH, text_table
from kernelroof.roofline.units import fixed, quantity, seconds

_LEGEND = (
    "ideal times at datasheet peaks (dense), step: one decode step; expected: that step by kernels as measured on that "
    "GPU, without the host, – where nobody measured one of its architecture, ≥ where most of the time is of kernels "
    "that were not measured and stand in at their ideal; max batch: sequences of prompt + output tokens that fit; "
    "compute from: batch from which the first decode step's FLOPs take longer than its bytes, – where it never is."
)


def run(args: argparse.Namespace) -> int:
    """Print one row per GPU, or a JSON array of whole estimates."""
    spec = read_spec(load_config(args.model), display_name(args.model))
    workload = workload_from(args, spec)
    records = []
    for gpu in dict.fromkeys(find_gpu(name) for name in args.gpu):
        peaks = ceilings_for(gpu, workload.dtype)
        record = estimate_record(
            spec,
            workload,
            device=peaks.name,
            flop_s=peaks.flop_s,
            byte_s=peaks.byte_s,
            memory_bytes=peaks.memory_bytes,
            origin=f"{peaks.origin}: {peaks.note}",
            quantised_peaks=quantised_peaks(gpu),
            gpu_key=gpu.key,
        )
        record["gpu"] = gpu.key
        record["largest_batch"] = largest_batch(spec, workload, gpu.memory_bytes)
        record["compute_bound_batch"] = compute_bound_batch(
            spec, workload, peaks.flop_s, peaks.byte_s, quantised_peaks=quantised_peaks(gpu)
        )
        records.append(record)
    if args.json:
        import json

        print(json.dumps(records, indent=2, allow_nan=False))
        return 0
    load = records[0]["workload"]
    asked = (
        f"{spec.name}: batch {load['batch']}, prompt {load['prompt']}, output {load['output']}, compute "
        f"{load['dtype']}, weights {load['weights_dtype']}, KV {load['kv_dtype']}; needs "
        f"{quantity(records[0]['total_bytes'], 'B')}"
    )
    print(textwrap.fill(asked, WIDTH))
    print(_table(records))
    print(textwrap.fill(_LEGEND, WIDTH))
    return 0


def _expected(phase: dict[str, Any]) -> str:
    """Where little was measured, what is known is a least time."""
    if phase["expected_ms"] is None:
        return "–"
    if mostly_measured(phase):
        return seconds(phase["expected_ms"] / 1e3, 3)
    return f"≥ {seconds(phase['expected_low_ms'] / 1e3, 3)}"


def _table(records: list[dict[str, Any]]) -> str:
    header = ["GPU", "memory", "fits", "prefill", "step", "expected", "tokens/s", "bound"]
    header += ["max batch", "compute from"]
    rows = [
        [
            r["gpu"],
            quantity(r["device"]["memory_bytes"], "B", 3),
            "yes" if r["fits"] else "NO",
            seconds(r["ttft_ms"] / 1e3, 3),
            seconds(r["tpot_ms"] / 1e3, 3),
            _expected(r["decode"]),
            fixed(r["tokens_per_s"]),
            f"{r['prefill']['bound']}/{r['decode']['bound']}",
            f"{r['largest_batch']:,}",
            "–" if r["compute_bound_batch"] is None else f"{r['compute_bound_batch']:,}",
        ]
        for r in records
    ]
    return text_table(header, rows, left=(0, 7), names=(0,))
