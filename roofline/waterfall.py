"""Every millisecond between what the model needs and what was measured, in terms that add up exactly.

One total after the other, each with one assumption changed; a term is the difference of two neighbours, so the
sum of all terms is the measured time by construction. The totals of a phase, in whole nanoseconds:

1. ideal: max(FLOPs / peak, bytes / bandwidth) of each forward as a whole: products and attention with their
   weights and the cache, each byte once (the closed form);
2. one after the other: the same work, the maximum taken op by op;
3. left out: with the ops that the closed form does not have (cache copies, norms, rotary, casts, sampling);
4. roofs: the same at the ceilings that were measured instead of the datasheet's;
5. traffic: with the bytes and FLOPs that really ran, counted or traced op by op;
6. kernels: the durations of these kernels;
7. unmatched: with the kernels that stand for no op;
8. overlap: less what ran at the same time;
9. idle: with the time in which no kernel ran;
10. dilation: less what the recording itself added: the bare wall time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.models.ops import TracedOp
from kernelroof.roofline.place import GROUP, numbers, shared_work

TERMS = (
    "ideal_ns",
    "one_after_another_ns",
    "left_out_ns",
    "roofs_ns",
    "traffic_ns",
    "kernels_ns",
    "unmatched_ns",
    "overlap_ns",
    "idle_ns",
    "dilation_ns",
)
"""Columns of waterfall.csv between the names and `total_ns`, in order."""
WORDS = {
    "ideal_ns": "the model's ideal",
    "one_after_another_ns": "ops one after another",
    "left_out_ns": "ops besides products and attention",
    "roofs_ns": "measured roofs, not the datasheet's",
    "traffic_ns": "bytes and FLOPs as they ran",
    "kernels_ns": "kernels slower than their roofs",
    "unmatched_ns": "kernels of no traced op",
    "overlap_ns": "at the same time as another",
    "idle_ns": "no kernel running",
    "dilation_ns": "added by the recording",
}
PRODUCTS = ("matmul", "attention")


class Roof(NamedTuple):
    """A compute peak in FLOP/s and a bandwidth in B/s."""

    flop_s: float
    byte_s: float

    def ns(self, flops: Any, moved: Any) -> Any:
        return np.maximum(flops / self.flop_s, moved / self.byte_s) * 1e9


class Clock(NamedTuple):
    """What a phase lasted besides its kernels, in ns; in a part of one only the idle time before its kernels."""

    overlap: int = 0
    idle: int = 0
    dilation: int = 0


def op_frame(ops: Sequence[TracedOp]) -> pd.DataFrame:
    """Traced ops as the columns that the waterfall needs: where they ran, FLOPs, least and own bytes."""
    table = pd.DataFrame([op._asdict() for op in ops], columns=list(TracedOp._fields))
    own = table[["weight_bytes", "act_read_bytes", "act_write_bytes", "kv_read_bytes", "kv_write_bytes"]].sum(axis=1)
    product = table["flops_kind"].isin(PRODUCTS)
    out: pd.DataFrame = table[["phase", "step", "module"]].assign(
        flops=table["flops"],
        product=product,
        least_bytes=(table["weight_bytes"] + table["kv_read_bytes"]).where(product, own),
    )
    return out


def terms(ops: pd.DataFrame, kernels: pd.DataFrame, sheet: Roof | None, measured: Roof, clock: Clock) -> dict[str, int]:
    """The terms of some ops and of the kernels that ran in the same place; see the module.

    Args:
        ops: of `op_frame`.
        kernels: rows of kernels.csv: `time_ns`, `ideal_ns` (null where FLOPs or bytes are not known), `count`;
            of kernels that are one op together, the group's FLOPs and bytes stand for theirs.
        sheet: the datasheet's roof; None where there is none: then `roofs_ns` is 0.
        measured: the ceilings that `ideal_ns` was computed with.
        clock: what was idle, at the same time, and added by the recording.
    """
    first = sheet or measured
    products = ops[ops["product"]]
    rest = ops[~ops["product"]]
    forwards = products.groupby("step")[["flops", "least_bytes"]].sum()
    whole = first.ns(forwards["flops"], forwards["least_bytes"]).sum()
    each = first.ns(products["flops"], products["least_bytes"]).sum()
    other = first.ns(rest["flops"], rest["least_bytes"]).sum()
    everything = measured.ns(ops["flops"], ops["least_bytes"]).sum()
    shared = shared_work(kernels)
    known = kernels["ideal_ns"].notna().to_numpy(bool) | shared
    number = kernels["count"].to_numpy(dtype=np.float64)
    at_roof = (kernels["ideal_ns"].to_numpy(dtype=np.float64, na_value=0.0) * number).sum()
    if shared.any():
        groups = kernels[shared].drop_duplicates(GROUP)
        together = measured.ns(numbers(groups["group_flops"]), numbers(groups["group_bytes"]))
        at_roof += (together * numbers(groups["count"])).sum()
    lasted = kernels["time_ns"].to_numpy(dtype=np.float64, na_value=0.0) * number
    totals = [whole, each, each + other, everything, at_roof, lasted[known].sum(), lasted.sum()]
    rounded = [round(float(total)) for total in totals]
    for step in (-clock.overlap, clock.idle, -clock.dilation):
        rounded.append(rounded[-1] + step)
    return dict(zip(TERMS, np.diff([0, *rounded]).tolist(), strict=True))


def phase_clock(wall: Mapping[str, Any], *, scaled: bool) -> Clock:
    """What `terms` needs of a phase's account in wall.json.

    scaled: the kernels' times were brought to the bare run's clock one by one (on a CPU), so nothing of the
        recording's own time is left in them.
    """
    if scaled:
        return Clock(wall["overlap_ns"], wall["gap_ns"], 0)
    dilation = wall["recorded_ns"] - wall["bare_ns"]
    return Clock(wall["overlap_ns"], wall["gap_ns"] + dilation, dilation)


def waterfall_table(
    ops: Sequence[TracedOp],
    kernels: pd.DataFrame,
    walls: Mapping[str, Mapping[str, Any]],
    *,
    sheet: Roof | None,
    measured: Roof,
    scaled: bool,
) -> pd.DataFrame:
    """waterfall.csv: one row per phase, per layer and per module, all of a phase's forwards together.

    `scope` is "phase", "layer" or "module"; `name` the phase, the layer's path or the module's. Rows of layers and
    modules end at the time of their kernels and of what was idle right before these: overlap, dilation and the
    idle time after the last kernel belong to the phase.
    """
    frame = op_frame(ops)
    rows: list[dict[str, Any]] = []

    def add(phase: str, scope: str, name: str, some: pd.DataFrame, ran: pd.DataFrame, clock: Clock) -> None:
        found = terms(some, ran, sheet, measured, clock)
        rows.append({"phase": phase, "scope": scope, "name": name, **found, "total_ns": sum(found.values())})

    for phase, wall in walls.items():
        some, ran = frame[frame["phase"] == phase], kernels[kernels["phase"] == phase]
        add(phase, "phase", phase, some, ran, phase_clock(wall, scaled=scaled))
        for scope, key in (("layer", layer_of), ("module", str)):
            parts = (dict(list(t.groupby(t["module"].astype(str).map(key), sort=False))) for t in (some, ran))
            ops_of, kernels_of = parts
            for name in dict.fromkeys((*ops_of, *kernels_of)):
                if name:
                    own = kernels_of.get(name, ran[:0])
                    add(phase, scope, name, ops_of.get(name, some[:0]), own, Clock(idle=idle_of(own)))
    table: pd.DataFrame = pd.DataFrame(rows, columns=["phase", "scope", "name", *TERMS, "total_ns"])
    return table


def idle_of(kernels: pd.DataFrame) -> int:
    """Time in which no kernel ran right before these kernels, in ns."""
    return int((kernels["idle_before_ns"] * kernels["count"]).sum())


def layer_of(module: str) -> str:
    """The path of the layer that a module is in ("model.layers.3"), empty outside of all."""
    pieces = module.split(".")
    at = next((i for i, piece in enumerate(pieces) if piece.isdigit()), None)
    return "" if at is None else ".".join(pieces[: at + 1])
