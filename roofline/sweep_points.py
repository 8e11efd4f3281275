"""The points of a measured sweep as one table, and what its curves say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.summary import PhaseSummary
from kernelroof.roofline.units import fixed

COLUMNS = (
    *("batch", "prompt", "output", "phase", "steps", "wall_ms", "wall_low_ms", "wall_high_ms", "tokens_per_s"),
    *("ideal_ms", "ideal_tokens_per_s", "pct_of_ideal", "kernels_ms", "gaps_ms", "recoverable_ms"),
    *("intensity", "ridge_flop_per_byte", "model_bound", "kernels_bound", "pct_of_roof", "mfu_pct", "mbu_pct"),
    *("kv_bytes", "top_role", "top_recoverable_ms", "time_source", "flops_source", "doubts"),
)
"""Columns of sweep.csv. Times are of one forward (a prefill, a mean decode step); `intensity` and `model_bound` are of
the model's own FLOPs and bytes; `pct_of_roof` of the kernels with FLOPs and bytes, at their own run's roofs;
`pct_of_ideal`, `mfu_pct`, `mbu_pct` of the wall time; the ideal, MFU and MBU are at the highest roofs of all points."""


def point_row(
    identity: Mapping[str, Any],
    summary: PhaseSummary,
    wall: Mapping[str, Any],
    kv_bytes: int,
    roofs: Ceilings,
    sources: Mapping[str, Any],
) -> dict[str, Any]:
    """One row of sweep.csv: a phase of one point, per forward.

    roofs: of the whole sweep, for the model's ideal: one machine has one roof, the highest that any point measured.
    """
    steps = summary.steps
    batch, prompt = int(identity["batch"]), int(identity["prompt"])
    tokens = batch * (prompt if summary.phase == "prefill" else 1)
    wall_ns = summary.wall_ns / steps
    ideal_ns = None if summary.model is None else roofs.ideal_ns(*summary.model) / steps
    flops, moved = summary.model or (None, None)
    placed_ns = summary.kernel_ns - summary.unplaced_ns
    intensity = flops / moved if flops is not None and moved else None
    return {
        "batch": batch,
        "prompt": prompt,
        "output": int(identity["output"]),
        "phase": summary.phase,
        "steps": steps,
        "wall_ms": wall_ns / 1e6,
        "wall_low_ms": wall["bare_min_ns"] / steps / 1e6,
        "wall_high_ms": wall["bare_max_ns"] / steps / 1e6,
        "tokens_per_s": tokens / wall_ns * 1e9,
        "ideal_ms": None if ideal_ns is None else ideal_ns / 1e6,
        "ideal_tokens_per_s": None if not ideal_ns else tokens / ideal_ns * 1e9,
        "pct_of_ideal": None if ideal_ns is None else 100 * ideal_ns / wall_ns,
        "kernels_ms": summary.kernel_ns / steps / 1e6,
        "gaps_ms": wall["gap_ns"] / steps / 1e6,
        "recoverable_ms": None if summary.recoverable_ns is None else summary.recoverable_ns / steps / 1e6,
        "intensity": intensity,
        "ridge_flop_per_byte": roofs.ridge,
        "model_bound": None if intensity is None else "memory" if intensity < roofs.ridge else "compute",
        "kernels_bound": summary.bound,
        "pct_of_roof": None if summary.ideal_ns is None or not placed_ns else 100 * summary.ideal_ns / placed_ns,
        "mfu_pct": None if flops is None else 100 * flops / steps / (wall_ns / 1e9 * roofs.flop_s),
        "mbu_pct": None if moved is None else 100 * moved / steps / (wall_ns / 1e9 * roofs.byte_s),
        "kv_bytes": kv_bytes,
        "top_role": summary.top_role,
        "top_recoverable_ms": None if summary.top_recoverable_ns is None else summary.top_recoverable_ns / steps / 1e6,
        "time_source": sources.get("timeline"),
        "flops_source": sources.get("counters"),
        "doubts": "; ".join(wall["doubts"]) or None,
    }


def axis_of(table: pd.DataFrame) -> str:
    """What the curves run along: the batch, unless only prompts differ."""
    return "batch" if table["batch"].nunique() > 1 or table["prompt"].nunique() == 1 else "prompt"


def findings(table: pd.DataFrame) -> list[str]:
    """What the curves say, a sentence for each phase and curve."""
    axis = axis_of(table)
    other = "prompt" if axis == "batch" else "batch"
    said = []
    for (phase, fixed_at), curve in table.groupby(["phase", other], sort=False):
        curve = curve.sort_values(axis)
        first, last = curve.iloc[0], curve.iloc[-1]
        if len(curve) < 2:
            continue
        gain = last["tokens_per_s"] / first["tokens_per_s"]
        words = (
            f"{phase}, {other} {fixed_at}: from {axis} {first[axis]} to {last[axis]} "
            f"{fixed(gain, 3)} times the tokens/s"
        )
        if pd.notna(last["ideal_tokens_per_s"]) and pd.notna(first["ideal_tokens_per_s"]):
            words += f" (the model alone: {fixed(last['ideal_tokens_per_s'] / first['ideal_tokens_per_s'], 3)} times)"
        bounds = curve["model_bound"].tolist()
        turn = next((a for a, b in zip(curve[axis], bounds, strict=True) if b == "compute"), None)
        if bounds[0] == "memory":
            words += (
                f"; by the model compute-bound from {axis} {turn}"
                if turn is not None
                else f"; memory-bound by the model to {axis} {last[axis]}"
            )
        if pd.notna(last["pct_of_ideal"]):
            words += f"; {_pct(first['pct_of_ideal'])} of the ideal at first, {_pct(last['pct_of_ideal'])} at last"
        if pd.notna(last["top_role"]):
            words += f"; at last the kernel role with most to recover is {last['top_role']}"
        said.append(words)
    return said


def _pct(value: float) -> str:
    return f"{value:.0f} %"
