"""From placed kernels to what a reader looks at: one line per phase, per module role, per kernel role.

A role is a module path with layer numbers wildcarded (model.layers.*.mlp.down_proj): the same work in
every layer is one thing to optimise.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.parsers.kernel_names import shorten
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.place import (
    GROUP,
    TOLERANCE_PCT,
    aggregate,
    heaviest,
    numbers,
    place,
    ratio,
    shared_work,
    whole_above_memory,
)

MFU_MEANS = "MFU = FLOPs of the model's matrix products and attention / (wall time x peak FLOP/s)"
MBU_MEANS = "MBU = bytes of weights and KV read once per forward / (wall time x DRAM bandwidth)"
_OPS_BYTES = ("weight_bytes", "act_read_bytes", "act_write_bytes", "kv_read_bytes", "kv_write_bytes")


class Estimated(NamedTuple):
    """The model's own work, summed over a phase."""

    flops: int
    model_flops: int
    """matrix products and attention only, where the table tells; else all"""
    bytes: int
    weight_bytes: int
    kv_read_bytes: int


class PhaseSummary(NamedTuple):
    """One phase, summed over its `steps`. Times are ns on the bare run's clock."""

    phase: str
    steps: int
    wall_ns: float
    kernel_ns: float
    """sum of the kernels' times"""
    overlap_ns: float
    """part of it that ran beside another kernel; wall = kernels - overlap + gaps"""
    launches: int
    unplaced: int
    """launches without FLOPs or bytes"""
    unplaced_ns: float
    flops: int | None
    bytes: int | None
    intensity: float | None
    ideal_ns: float | None
    """sum of the placed kernels' times at their roofs"""
    recoverable_ns: float | None
    bound: str
    """the bound that holds for most of the kernels' time"""
    bound_pct: float
    """for how much of it"""
    estimated: Estimated | None
    """the traced ops"""
    model: tuple[int, int] | None
    """FLOPs and bytes of the closed form"""
    model_ns: float | None
    """the phase at its roof as one piece of work: max(FLOPs / peak, bytes / bandwidth) of `model`"""
    mfu_pct: float | None
    mbu_pct: float | None
    top_role: str | None
    """the kernel role with most to recover"""
    top_recoverable_ns: float | None


def role_of(module: str) -> str:
    """A module path with its numbers wildcarded: model.layers.7.mlp.up_proj -> model.layers.*.mlp.up_proj."""
    return ".".join("*" if part.isdigit() else part for part in module.split("."))


def phase_summary(
    placed: pd.DataFrame,
    phase: str,
    *,
    wall_ns: float,
    steps: int,
    ceilings: Ceilings,
    ops: pd.DataFrame | None = None,
    model: tuple[int, int] | None = None,
    overlap_ns: float = 0.0,
) -> PhaseSummary:
    """Sum one phase. Where one op is several kernels whose figures are known only together, they count as one piece.

    Args:
        placed: the table of placed kernels (any phases; only `phase` is looked at).
        wall_ns: wall time of the whole phase (all its steps) in the bare run.
        steps: forwards in the phase: 1 in prefill, the number of decode steps in decode.
        ops: the traced estimate, columns as in ops.csv, summed over the same steps.
        overlap_ns: time in which more than one kernel ran (a device with several streams).
        model: FLOPs and unavoidable bytes of the whole phase in closed form, for MFU, MBU and the ideal
            time; the traced ops can't serve: their bytes hold what an implementation moves besides.
    """
    rows = placed[placed["phase"] == phase]
    total = aggregate(_whole_groups(rows, ceilings).assign(all="all"), "all")
    one = {str(k): v for k, v in total.iloc[0].to_dict().items()} if len(total) else {}
    kernel_ns = float(one.get("time_ns", 0))
    bounds = (rows["time_ns"] * rows["count"]).groupby(rows["bound"]).sum().sort_values(ascending=False)
    est = estimated(ops, phase) if ops is not None else None
    top = kernel_table(placed, phase, wall_ns=wall_ns, ceilings=ceilings).dropna(subset="recoverable_ns").head(1)
    return PhaseSummary(
        phase=phase,
        steps=steps,
        wall_ns=wall_ns,
        kernel_ns=kernel_ns,
        overlap_ns=overlap_ns,
        launches=int(rows["count"].sum()),
        unplaced=int(one.get("unplaced", 0)),
        unplaced_ns=float(one.get("unplaced_ns", 0)),
        flops=_whole(one.get("flops")),
        bytes=_whole(one.get("bytes")),
        intensity=_real(one.get("intensity")),
        ideal_ns=_real(one.get("ideal_ns")),
        recoverable_ns=_real(one.get("recoverable_ns")),
        bound=str(bounds.index[0]) if len(bounds) else "unknown",
        bound_pct=100 * float(bounds.iloc[0]) / kernel_ns if kernel_ns else 0.0,
        estimated=est,
        model=model,
        model_ns=ceilings.ideal_ns(*model) if model else None,
        mfu_pct=100 * model[0] / (wall_ns / 1e9 * ceilings.flop_s) if model and wall_ns else None,
        mbu_pct=100 * model[1] / (wall_ns / 1e9 * ceilings.byte_s) if model and wall_ns else None,
        top_role=str(top["label"].iloc[0]) if len(top) else None,
        top_recoverable_ns=float(top["recoverable_ns"].iloc[0]) if len(top) else None,
    )


def module_table(
    placed: pd.DataFrame, phase: str, *, wall_ns: float, ceilings: Ceilings, ops: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row per module role of a phase, most recoverable first.

    Where one op is several kernels whose FLOPs and bytes are known only together, they are judged here
    as one launch. Columns: `role`, `kind`, those of `place.aggregate`, `share_pct` of the wall time, and
    from `ops` `est_flops`, `est_bytes`, `est_ideal_ns`. A role that only the estimate has is kept, with
    null for all that is measured.
    """
    rows = _whole_groups(placed[placed["phase"] == phase], ceilings)
    return _table(rows, _of_phase(ops, phase), ["role"], wall_ns, ceilings)


def kernel_table(
    placed: pd.DataFrame, phase: str, *, wall_ns: float, ceilings: Ceilings, ops: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row per kernel role of a phase: the kernels of one name and kind in one module role.

    Columns as for `module_table`, with `kernel`, `op` and `label` (role and kernel, shortened).
    """
    rows = placed[placed["phase"] == phase]
    out = _table(rows, _of_phase(ops, phase), ["role", "kind", "op", "kernel"], wall_ns, ceilings)
    out.insert(0, "label", labels(out))
    return out


def kind_table(placed: pd.DataFrame, phase: str, *, wall_ns: float, ceilings: Ceilings) -> pd.DataFrame:
    """One row per kind of work of a phase, most recoverable first: the kernels of that kind in all modules.

    A module may hold several kinds (attention, the cache's copies, rotary), so this is no sum over modules.
    Columns: `kind`, those of `place.aggregate`, `share_pct` of the wall time.
    """
    return _table(_whole_groups(placed[placed["phase"] == phase], ceilings), None, ["kind"], wall_ns, ceilings)


def labels(table: pd.DataFrame) -> list[str]:
    """Short names for rows with `role`, `kind` and `kernel`; the kind is added where they would be equal."""
    short = [label_of(str(r), str(k)) for r, k in zip(table["role"], table["kernel"], strict=True)]
    times = Counter(short)
    return [f"{s} ({k})" if times[s] > 1 else s for s, k in zip(short, table["kind"], strict=True)]


def label_of(role: str, kernel: str) -> str:
    """Short name of a kernel role: "mlp.down_proj mm" from its module role and kernel name."""
    parts = [p for p in role.split(".") if p != "*"]
    if len(parts) > 2 or (len(parts) > 1 and parts[0] in ("model", "transformer")):
        parts = parts[-2:] if parts[-2] not in ("model", "layers", "transformer", "h") else parts[-1:]
    name = shorten(kernel, 40) if "(" in kernel or "<" in kernel else kernel.removeprefix("aten::")
    return f"{'.'.join(parts)} {name}"


def top_kernels(placed: pd.DataFrame, phase: str, top: int) -> list[tuple[str, pd.DataFrame]]:
    """The `top` kernel roles of a phase by time: label and launches of each, most time first."""
    rows = with_roles(placed[placed["phase"] == phase])
    rows = rows.assign(_total_ns=rows["time_ns"] * rows["count"])
    keys = ["role", "kind", "op", "kernel"]
    order = rows.groupby(keys, sort=False, dropna=False)["_total_ns"].sum().sort_values(ascending=False)
    names = labels(order.index.to_frame(index=False))
    groups = dict(iter(rows.drop(columns="_total_ns").groupby(keys, sort=False, dropna=False)))
    return [(name, groups[key]) for name, key in list(zip(names, order.index, strict=True))[:top]]


def estimated(ops: pd.DataFrame, phase: str) -> Estimated:
    """Sum the rows of ops.csv of one phase; FLOPs and bytes are those of all its forwards."""
    rows = ops[ops["phase"] == phase]
    products = rows
    if "flops_kind" in rows:
        products = rows[rows["flops_kind"].isin(["matmul", "attention", "scan"])]
    return Estimated(
        flops=int(rows["flops"].sum()),
        model_flops=int(products["flops"].sum()),
        bytes=int(_op_bytes(rows).sum()),
        weight_bytes=int(rows["weight_bytes"].sum()),
        kv_read_bytes=int(rows["kv_read_bytes"].sum()),
    )


def estimate_points(ops: pd.DataFrame, phase: str) -> dict[str, Any]:
    """What the pictures draw of the estimate: (FLOPs, bytes) of the `phase` and of its `modules` by kind.

    Needs the column `kind` in `ops` for the latter.
    """
    rows = ops[ops["phase"] == phase]
    total = estimated(ops, phase)
    modules: dict[str, tuple[int, int]] = {}
    if "kind" in rows:
        sums = pd.DataFrame({"kind": rows["kind"], "flops": rows["flops"], "bytes": _op_bytes(rows)})
        for kind, sub in sums.groupby("kind", sort=False):
            modules[str(kind)] = (int(sub["flops"].sum()), int(sub["bytes"].sum()))
    return {"phase": (total.flops, total.bytes), "modules": modules}


def _table(
    rows: pd.DataFrame, ops: pd.DataFrame | None, keys: list[str], wall_ns: float, ceilings: Ceilings
) -> pd.DataFrame:
    rows = with_roles(rows)
    out = aggregate(rows, keys)
    if "kind" not in keys:
        work = rows[["role", "kind"]].assign(weight_ns=numbers(rows["time_ns"]) * numbers(rows["count"]))
        out = out.merge(heaviest(work, ["role"], "kind"), on="role", how="left", validate="1:1")
    above = (numbers(out["pct_of_roof"]) > TOLERANCE_PCT) & (out["bound"] != "unknown").to_numpy(bool)
    out["reason"] = out["reason"].astype("string")
    for i in out.index[above & (numbers(out["attained_byte_s"]) > 0)]:
        out.loc[i, "reason"] = whole_above_memory(out.loc[i, "pct_of_roof"], out.loc[i, "attained_byte_s"], ceilings)
    if ops is not None:
        out = _with_estimate(out, ops, keys, ceilings)
    out["share_pct"] = ratio(100 * numbers(out["time_ns"]), np.full(len(out), float(wall_ns)))
    ordered = out.sort_values(by=["recoverable_ns", "time_ns"], ascending=False, na_position="last", kind="stable")
    table: pd.DataFrame = ordered.reset_index(drop=True)
    return table


def _with_estimate(table: pd.DataFrame, ops: pd.DataFrame, keys: list[str], ceilings: Ceilings) -> pd.DataFrame:
    """Add the estimated columns, matched by the keys that both have (an op's kernels share its estimate)."""
    work = pd.DataFrame({"role": [role_of(str(m)) for m in ops["module"]]}, index=ops.index, dtype="string")
    work["kind"] = ops.get("kind", pd.NA)
    work["op"] = ops["op"]
    work["est_flops"] = ops["flops"].astype("Int64")
    work["est_bytes"] = _op_bytes(ops).astype("Int64")
    work["est_ideal_ns"] = (
        np.fmax(numbers(work["est_flops"]) / ceilings.flop_s, numbers(work["est_bytes"]) / ceilings.byte_s) * 1e9
    )
    shared = [k for k in keys if k in ("role", "op") or (k == "kind" and "kind" in ops)]
    numbers_only = work.groupby(shared, sort=False)[["est_flops", "est_bytes", "est_ideal_ns"]].sum().reset_index()
    if keys == ["role"]:
        kinds = work.groupby("role", sort=False)["kind"].first().reset_index()
        numbers_only = numbers_only.merge(kinds.rename(columns={"kind": "est_kind"}), on="role")
    out: pd.DataFrame = table.merge(numbers_only, on=shared, how="outer", sort=False)
    out["launches"] = out["launches"].fillna(0)
    if "est_kind" in out:
        out["kind"] = out["kind"].fillna(out.pop("est_kind"))
    if "kernel" in out:
        out["kernel"] = out["kernel"].fillna(out["op"])
    # Several kernels of one op share its estimate: it stands once, lest sums count it again.
    again = out.duplicated(shared)
    for column in ("est_flops", "est_bytes", "est_ideal_ns"):
        out[column] = out[column].mask(again)
    only = out["time_ns"].isna()
    out["bound"] = out["bound"].fillna("unknown")
    out.loc[only, "reason"] = "estimated, but no kernel was recorded for it"
    return out


def _whole_groups(rows: pd.DataFrame, ceilings: Ceilings) -> pd.DataFrame:
    """Replace kernels whose FLOPs and bytes are known only for their group by one row per group."""
    shared = shared_work(rows)
    if not shared.any():
        return rows
    grouped = rows[shared].groupby(GROUP, sort=False, dropna=False)
    whole = grouped.first().reset_index()
    whole["time_ns"] = grouped["time_ns"].sum().to_numpy()
    whole["flops"], whole["dram_read_bytes"] = whole["group_flops"], whole["group_bytes"]
    whole["dram_write_bytes"], whole["reason"] = 0, pd.NA
    judged = place(whole, ceilings)
    together: pd.DataFrame = pd.concat([rows[~shared], judged[rows.columns]], ignore_index=True)
    return together


def with_roles(rows: pd.DataFrame) -> pd.DataFrame:
    """Add `role`, and `op` where the timeline does not know it (then the kernel's own name)."""
    paths = {m: role_of(str(m)) for m in rows["module"].unique()}
    out: pd.DataFrame = rows.assign(role=rows["module"].map(paths).astype("string"))
    if "op" not in out:
        out["op"] = out["kernel"]
    out["op"] = out["op"].fillna(out["kernel"])
    return out


def _of_phase(ops: pd.DataFrame | None, phase: str) -> pd.DataFrame | None:
    if ops is None:
        return None
    rows: pd.DataFrame = ops[ops["phase"] == phase]
    return rows


def _op_bytes(ops: pd.DataFrame) -> pd.Series[int]:
    total: pd.Series[int] = ops[list(_OPS_BYTES)].sum(axis=1)
    return total


def _whole(value: Any) -> int | None:
    return None if value is None or pd.isna(value) else int(value)


def _real(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)
