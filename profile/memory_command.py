"""`kernelroof memory`: what fits, what does not, and where the rest can go."""

from __future__ import annotations

import argparse
from typing import Any

from kernelroof.models.capacity import (
    cache_outgrows_weights,
    largest_batch,
    largest_context,
    parameters_that_fit,
)
from kernelroof.models.coefficients import coefficients
from kernelroof.models.describe import experts
from kernelroof.models.errors import UsageError
from kernelroof.models.estimate import costs, ideal_times, quantised_peak
from kernelroof.models.offload import (
    TIERS,
    Tier,
    cold_cache,
    contiguous_waste,
    offload,
    paging,
    stream_byte_s,
    streamed_bytes,
)
from kernelroof.models.parallel import largest_split_batch, split
from kernelroof.models.presets import display_name, load_config
from kernelroof.models.spec import ModelSpec, read_spec
from kernelroof.models.workload import Workload, precision_of
from kernelroof.profile.estimate_command import device_from, quantised_peaks_from, workload_from
from kernelroof.profile.option_checks import check_one_device, check_plausible
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.links import PCIE, Link, host_link, peer_link
from kernelroof.roofline.memory_card import memory_card

_MOST_SPLITS = 1_000
"""Pairs of --tp and --pp: each is estimated stage by stage."""


def run(args: argparse.Namespace) -> int:
    """Print the sections that the given options make possible; see `decision_options` for them."""
    record = _without_model(args) if args.model is None else _with_model(args)
    if args.json:
        import json

        print(json.dumps(record, indent=2, allow_nan=False))
        return 0
    print(memory_card(record))
    return 0


def _tiers(args: argparse.Namespace) -> list[Tier]:
    own = {"host memory": args.host_gbs, "NVMe": args.nvme_gbs, "disk": args.disk_gbs}
    check_plausible({"--host-gbs": args.host_gbs, "--nvme-gbs": args.nvme_gbs, "--disk-gbs": args.disk_gbs})
    return [t if own[t.name] is None else t._replace(byte_s=own[t.name] * 1e9, note="given") for t in TIERS]


def _without_model(args: argparse.Namespace) -> dict[str, Any]:
    """Which parameter counts fit, and how long a model of a given size takes to load from each tier."""
    check_one_device(args)
    check_plausible({"--params-b": args.params_b})
    check_plausible({"--reserve-gb": args.reserve_gb}, least=0)
    name = None
    memory = None if args.memory_gb is None else args.memory_gb * 1e9
    byte_s = None if args.bandwidth_gbs is None else args.bandwidth_gbs * 1e9
    if args.gpu is not None:
        from kernelroof.roofline.gpus import find_gpu

        gpu = find_gpu(args.gpu)
        memory, byte_s, name = gpu.memory_bytes, gpu.byte_s, gpu.product
    if memory is None and args.params_b is None:
        raise UsageError("nothing to answer", "Give MODEL, or --gpu or --memory-gb, or --params-b.")
    record: dict[str, Any] = {"device": name, "reserve_bytes": args.reserve_gb * 1e9}
    if memory is not None:
        if not 0 <= args.reserve_gb * 1e9 < memory:
            raise UsageError(
                f"--reserve-gb {args.reserve_gb:g} of {memory / 1e9:g} GB", "Give GB from 0 to below the memory."
            )
        record["memory_bytes"] = memory
        record["sizes"] = [r._asdict() for r in parameters_that_fit(memory, args.reserve_gb * 1e9)]
    if args.params_b is not None:
        size = args.params_b * 1e9 * 2
        own = [Tier(f"{name or 'GPU'} memory", byte_s, False, "")] if byte_s else []
        record["load"] = [
            {"tier": t.name, "byte_s": t.byte_s, "bytes": size, "load_s": size / t.byte_s}
            for t in (*own, *_tiers(args))
        ]
    return record


def _with_model(args: argparse.Namespace) -> dict[str, Any]:
    spec = read_spec(load_config(args.model), display_name(args.model))
    workload = workload_from(args, spec)
    cost, model = costs(spec, workload), coefficients(spec, precision_of(spec, workload))
    tokens = workload.prompt + workload.output
    record: dict[str, Any] = {
        "use": {
            "model": spec.name,
            "batch": workload.batch,
            "tokens": tokens,
            "weight_bytes": cost.weight_bytes,
            "step_weight_bytes": cost.first_step.weight_bytes,
            "routed_expert_bytes": sum(e.experts * e.bytes_each for e in model.experts),
            "experts": experts(spec, workload.batch),
            "kv_bytes": cost.kv_bytes,
            "peak_activation_bytes": cost.peak_activation_bytes,
            "overhead_share": workload.overhead,
            "total_bytes": cost.total_bytes,
        },
        "cache": _cache(args, spec, workload),
    }
    ceilings = device_from(args, workload)
    if ceilings is None or ceilings.memory_bytes is None:
        return record
    capacity = ceilings.memory_bytes
    record["use"] |= {
        "device": ceilings.name,
        "memory_bytes": capacity,
        "fits": cost.total_bytes <= capacity,
        "largest_batch": largest_batch(spec, workload, capacity),
        "largest_context": largest_context(spec, workload, capacity),
        "max_positions": spec.max_positions,
    }
    links = _links(args)
    record["splits"] = _splits(args, spec, workload, ceilings, links["peer"])
    record["tiers"] = _spilled(args, spec, workload, ceilings, links["host"])
    return record


def _cache(args: argparse.Namespace, spec: ModelSpec, workload: Workload) -> dict[str, Any]:
    cost = costs(spec, workload)
    tokens, per_token = workload.prompt + workload.output, cost.kv_bytes_per_token
    blocks = [
        paging(block, tokens=tokens, sequences=workload.batch, kv_bytes_per_token=per_token) for block in args.blocks
    ]
    limit = spec.max_positions
    return {
        "kv_bytes_per_token": per_token,
        "state_bytes_per_sequence": cost.state_bytes_per_sequence,
        "outgrows_weights_at_tokens": cache_outgrows_weights(spec, workload),
        "batch": workload.batch,
        "contiguous_waste_share": contiguous_waste(tokens=tokens, reserved=limit) if limit else None,
        "max_positions": spec.max_positions,
        "paging": [p._asdict() for p in blocks],
    }


def _links(args: argparse.Namespace) -> dict[str, Link]:
    peer, host = Link(PCIE[4], "PCIe 4.0 x16, assumed"), Link(PCIE[4], "PCIe 4.0 x16, assumed")
    if args.gpu is not None:
        from kernelroof.roofline.gpus import find_gpu

        gpu = find_gpu(args.gpu)
        peer, host = peer_link(gpu.key, gpu.cc), host_link(gpu.key, gpu.cc)
    if args.link_gbs is not None:
        check_plausible({"--link-gbs": args.link_gbs})
        peer = Link(args.link_gbs * 1e9, "given")
    return {"peer": peer, "host": host}


def _splits(
    args: argparse.Namespace, spec: ModelSpec, workload: Workload, ceilings: Ceilings, link: Link
) -> dict[str, Any]:
    rows, refused = [], []
    if len(args.tp) * len(args.pp) > _MOST_SPLITS:
        raise UsageError(
            f"{len(args.tp) * len(args.pp):,} splits are too many", f"Give lists of {_MOST_SPLITS:,} pairs at most."
        )
    for tp in args.tp:
        for pp in args.pp:
            try:
                found = split(
                    spec,
                    workload,
                    tp=tp,
                    pp=pp,
                    flop_s=ceilings.flop_s,
                    byte_s=ceilings.byte_s,
                    link_byte_s=link.byte_s,
                    quantised_peaks=quantised_peaks_from(args),
                )
            except UsageError as error:
                refused.append(f"tp {tp}, pp {pp}: {error.what}")
                continue
            capacity = ceilings.memory_bytes or 0
            largest = largest_split_batch(spec, workload, tp=tp, pp=pp, memory_bytes=capacity)
            rows.append({**found._asdict(), "fits": found.total_bytes <= capacity, "largest_batch": largest})
    return {"link": link._asdict(), "device": ceilings.name, "rows": rows, "refused": refused}


def _spilled(
    args: argparse.Namespace, spec: ModelSpec, workload: Workload, ceilings: Ceilings, link: Link
) -> dict[str, Any]:
    """What the tiers cost: the part of the weights that does not fit, and one sequence's resting cache."""
    cost = costs(spec, workload)
    peaks = quantised_peaks_from(args)
    apart = quantised_peak(cost.quantised, peaks, ceilings.flop_s)
    times = ideal_times(cost, ceilings.flop_s, ceilings.byte_s, quantised_flop_s=apart)
    excess = cost.total_bytes - (ceilings.memory_bytes or 0)
    streamed = streamed_bytes(coefficients(spec, precision_of(spec, workload)), excess, workload.batch)
    one = costs(spec, workload._replace(batch=1))
    one_times = ideal_times(one, ceilings.flop_s, ceilings.byte_s, quantised_flop_s=apart)
    rows = []
    for tier in _tiers(args):
        spilled = offload(tier, streamed=streamed, step_s=times.first_step_s, link_byte_s=link.byte_s)
        cold = cold_cache(
            tier,
            cache_bytes=one.kv_bytes,
            prefill_s=one_times.prefill_s,
            step_s=times.first_step_s,
            link_byte_s=link.byte_s,
        )
        rows.append(
            {
                "tier": tier.name,
                "byte_s": tier.byte_s,
                "stream_byte_s": stream_byte_s(tier, link.byte_s),
                "note": tier.note,
                "offload": spilled._asdict() if excess > 0 else None,
                "cold_cache": cold._asdict(),
            }
        )
    return {
        "link": link._asdict(),
        "rows": rows,
        "excess_bytes": max(excess, 0),
        "weight_bytes": cost.weight_bytes,
        "tokens": workload.prompt + workload.output,
        "step_s": times.first_step_s,
    }
