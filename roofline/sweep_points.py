"""The points of a measured sweep as one table, and what its curves say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from kernelroof.roofline.ceilings import Ceilings, highest
from kernelroof.roofline.place import TOLERANCE_PCT
from kernelroof.roofline.steady import AGREEING, UNCONFIRMED, roof_doubts
from kernelroof.roofline.summary import PhaseSummary
from kernelroof.roofline.sweep_doubts import BETWEEN, doubt_words
from kernelroof.roofline.units import counted, fixed, quantity

COLUMNS = (
    *("batch", "prompt", "output", "phase", "steps", "wall_ms", "wall_low_ms", "wall_high_ms"),
    *("repeats", "repeat_low_ms", "repeat_high_ms", "tokens_per_s"),
    *("ideal_ms", "ideal_tokens_per_s", "pct_of_ideal", "expected_ms", "expected_tokens_per_s", "expected_note"),
    *("kernels_ms", "gaps_ms", "recoverable_ms"),
    *("intensity", "ridge_flop_per_byte", "model_bound", "kernels_bound", "pct_of_roof", "mfu_pct", "mbu_pct"),
    *("kv_bytes", "top_role", "top_recoverable_ms"),
    *("device", "dtype", "roof_flop_s", "roof_byte_s", "roofs", "own_flop_s", "own_byte_s", "own_roofs"),
    *("time_source", "flops_source", "doubts"),
)
"""Columns of sweep.csv. Times are of one forward (a prefill, a mean decode step): `wall_ms` the mean of each forward's
median over the bare repeats, `wall_low_ms` and `wall_high_ms` the mean of each forward's fastest and slowest, so that
`wall_ms` lies between them; `repeat_low_ms` and `repeat_high_ms` are whole repeats, of which none has only good steps.

Ideal, shares, bounds, MFU, MBU and recoverable time are all at `roof_flop_s` and `roof_byte_s`, the highest roofs of
all points; `own_flop_s` and `own_byte_s` are those measured with the point. `intensity` and `model_bound` are of the
model's own FLOPs and bytes; `pct_of_roof` is of the time of kernels with FLOPs and bytes, `pct_of_ideal` of the wall
time."""


class SweepRoofs(NamedTuple):
    """The roofs by which all points of a sweep are judged."""

    ceilings: Ceilings
    words: str
    """where they come from"""
    doubts: list[str]
    """why they may be too low"""


class Timing(NamedTuple):
    """What the bare repeats of a phase took, in ns of the whole phase."""

    repeats: int
    low_ns: float
    """sum over forwards of each one's fastest repeat"""
    high_ns: float


class Expectation(NamedTuple):
    """The expected time of a forward by measured kernels of the device, and what it rests on or why it is missing."""

    ms: float | None
    note: str


def sweep_roofs(points: Sequence[Sequence[Ceilings]]) -> SweepRoofs:
    """One machine has one roof of each kind: the highest that any point measured.

    Args:
        points: of each point, the rounds in which its roofs were measured.
    """
    rounds = [found for point in points for found in point]
    words = f"{rounds[0].origin}, the highest of {counted(len(points), 'point')}"
    return SweepRoofs(highest(rounds), words, roof_doubts(rounds, None, None))


def timing(bare: Mapping[str, Any], phase: str) -> Timing:
    """The repeats of a phase, from bare.json."""
    forwards = [[ns] for ns in bare["prefill_ns"]] if phase == "prefill" else bare["decode_step_ns"]
    each = list(zip(*forwards, strict=True))
    return Timing(len(forwards), float(sum(map(min, each))), float(sum(map(max, each))))


def point_row(
    identity: Mapping[str, Any],
    summary: PhaseSummary,
    wall: Mapping[str, Any],
    kv_bytes: int,
    roofs: SweepRoofs,
    own: Ceilings,
    sources: Mapping[str, Any],
    *,
    bare: Timing,
    expected: Expectation,
) -> dict[str, Any]:
    """One row of sweep.csv: a phase of one point, per forward.

    Args:
        summary: of kernels that were placed under `roofs`.
        own: the roofs measured with the point.
    """
    steps, at = summary.steps, roofs.ceilings
    batch, prompt = int(identity["batch"]), int(identity["prompt"])
    tokens = batch * (prompt if summary.phase == "prefill" else 1)
    wall_ns = summary.wall_ns / steps
    ideal_ns = None if summary.model is None else at.ideal_ns(*summary.model) / steps
    flops, moved = summary.model or (None, None)
    placed_ns = summary.kernel_ns - summary.unplaced_ns
    intensity = flops / moved if flops is not None and moved else None
    several = bare.repeats > 1
    share = None if ideal_ns is None else 100 * ideal_ns / wall_ns
    doubts = [*(d for d in wall["doubts"] if not d.startswith(UNCONFIRMED)), *roofs.doubts]
    if share is not None and share > TOLERANCE_PCT:
        doubts.append(f"FASTER THAN ITS IDEAL: {share:.0f} %; operands stay in a cache, or the roofs are too low")
    return {
        "batch": batch,
        "prompt": prompt,
        "output": int(identity["output"]),
        "phase": summary.phase,
        "steps": steps,
        "wall_ms": wall_ns / 1e6,
        "wall_low_ms": bare.low_ns / steps / 1e6 if several else None,
        "wall_high_ms": bare.high_ns / steps / 1e6 if several else None,
        "repeats": bare.repeats,
        "repeat_low_ms": wall["bare_min_ns"] / steps / 1e6 if several else None,
        "repeat_high_ms": wall["bare_max_ns"] / steps / 1e6 if several else None,
        "tokens_per_s": tokens / wall_ns * 1e9,
        "ideal_ms": None if ideal_ns is None else ideal_ns / 1e6,
        "ideal_tokens_per_s": None if not ideal_ns else tokens / ideal_ns * 1e9,
        "pct_of_ideal": share,
        "expected_ms": expected.ms,
        "expected_tokens_per_s": None if not expected.ms else tokens / expected.ms * 1e3,
        "expected_note": expected.note,
        "kernels_ms": summary.kernel_ns / steps / 1e6,
        "gaps_ms": wall["gap_ns"] / steps / 1e6,
        "recoverable_ms": None if summary.recoverable_ns is None else summary.recoverable_ns / steps / 1e6,
        "intensity": intensity,
        "ridge_flop_per_byte": at.ridge,
        "model_bound": None if intensity is None else "memory" if intensity < at.ridge else "compute",
        "kernels_bound": summary.bound,
        "pct_of_roof": None if summary.ideal_ns is None or not placed_ns else 100 * summary.ideal_ns / placed_ns,
        "mfu_pct": summary.mfu_pct,
        "mbu_pct": summary.mbu_pct,
        "kv_bytes": kv_bytes,
        "top_role": summary.top_role,
        "top_recoverable_ms": None if summary.top_recoverable_ns is None else summary.top_recoverable_ns / steps / 1e6,
        "device": at.name,
        "dtype": at.dtype,
        "roof_flop_s": at.flop_s,
        "roof_byte_s": at.byte_s,
        "roofs": roofs.words,
        "own_flop_s": own.flop_s,
        "own_byte_s": own.byte_s,
        "own_roofs": _apart(own, at),
        "time_source": sources.get("timeline"),
        "flops_source": sources.get("counters"),
        "doubts": BETWEEN.join(doubts) or None,
    }


def _apart(own: Ceilings, at: Ceilings) -> str | None:
    """What a point's own roofs are where they are more than 10 % below the sweep's."""
    parts = [
        f"{quantity(mine, unit, 3)} where the sweep has {quantity(common, unit, 3)}"
        for mine, common, unit in ((own.flop_s, at.flop_s, "FLOP/s"), (own.byte_s, at.byte_s, "B/s"))
        if common > AGREEING * mine
    ]
    return f"own roofs: {', '.join(parts)}" if parts else None


def axis_of(table: pd.DataFrame) -> str:
    """What the curves run along: the batch, unless only prompts differ."""
    return "batch" if table["batch"].nunique() > 1 or table["prompt"].nunique() == 1 else "prompt"


def findings(table: pd.DataFrame) -> list[str]:
    """What the curves say, a sentence for each phase and curve, with what makes it doubtful."""
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
        doubts = doubt_words(curve, axis)
        said.append(f"{words}; DOUBTFUL: {', '.join(doubts)}" if doubts else words)
    return said


def _pct(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 else f"{fixed(value, 2)} %"
