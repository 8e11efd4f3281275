"""What the GPU check compares: pure functions from tables to rows of its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd
from kernelroof.profile.known_work import COPY, COPY_BYTES, FLOPS, PRODUCT
from kernelroof.roofline.summary import role_of

OK, OFF, MISSING = "ok", "off", "missing"
FLOPS_WITHIN, READS_WITHIN = 0.01, 0.03


class Row(NamedTuple):
    """One line of the table: what was checked, how it came out, the figures in words."""

    check: str
    result: str
    words: str


def compare(check: str, counted: float | None, expected: float, within: float | None, unit: str) -> Row:
    """Counted against expected; `within` None: the difference is only told."""
    if counted is None or pd.isna(counted):
        return Row(check, MISSING, "not counted on this GPU with this ncu")
    share = counted / expected - 1 if expected else float("inf")
    words = f"{counted:,.0f} {unit} counted, {expected:,.0f} expected: {100 * share:+.2f} %"
    return Row(check, OK if within is None or abs(share) <= within else OFF, words)


def known_rows(counters: pd.DataFrame) -> list[Row]:
    """The known product and copy against what was counted of them.

    Args:
        counters: COUNTERS of a counting run of `known_work`.
    """
    ranges = counters["range"].astype("string").fillna("")
    product, copy = counters[ranges.str.contains(PRODUCT)], counters[ranges.str.contains(COPY)]
    if not ranges.str.len().any() and len(counters) >= 2:
        # ncu saw no ranges: the copy is the last kernel, the product all before it.
        product, copy = counters.iloc[:-1], counters.iloc[-1:]
    flops = product["flops"].sum(min_count=max(len(product), 1))
    reads = copy["dram_read_bytes"].sum(min_count=1)
    return [
        compare("FLOPs of a known product", _real(flops), FLOPS, FLOPS_WITHIN, "FLOP"),
        compare("DRAM reads of a known copy", _real(reads), COPY_BYTES, READS_WITHIN, "B"),
    ]


def trusted(rows: list[Row]) -> bool:
    """Whether counters can be trusted: nothing known came out wrong."""
    return all(row.result != OFF for row in rows)


def level_rows(sums: Mapping[str, float]) -> list[Row]:
    """Tensor-op identities: a counter without a sparsity suffix is the sum of its `_off` and `_on`.

    Args:
        sums: summed counters by full metric name (`...sum`).
    """
    out = []
    for name, total in sums.items():
        stem = name.removesuffix(".sum")
        if "_sparsity_" in stem:
            continue
        parts = [f"{stem}_sparsity_{side}.sum" for side in ("off", "on")]
        if not all(p in sums for p in parts):
            continue
        under = sum(sums[p] for p in parts)
        if total or under:
            words = f"{total:,.0f} against off + on {under:,.0f}"
            out.append(Row(f"tensor levels of {stem.removeprefix('sm__')}", OK if total == under else OFF, words))
    return out or [Row("tensor levels", MISSING, "no counter with its sparsity parts came back above zero")]


def work_rows(kernels: pd.DataFrame, ops: pd.DataFrame, estimate: Mapping[str, Any]) -> list[Row]:
    """Per phase: traced FLOPs against counted ones, closed-form and traced bytes against counted reads."""
    out = []
    for phase in ("prefill", "decode"):
        rows, traced = kernels[kernels["phase"] == phase], ops[ops["phase"] == phase]
        counted = rows[rows["flops_source"] == "ncu"]
        record = estimate[phase]
        model = (
            (record["total_flops"], record["total_bytes"]) if phase == "decode" else (record["flops"], record["bytes"])
        )
        reads = rows.loc[rows["bytes_source"] == "ncu", "dram_read_bytes"].sum(min_count=1)
        columns = ["weight_bytes", "act_read_bytes", "kv_read_bytes"]
        flops = _real(counted["flops"].sum(min_count=1))
        out.append(compare(f"{phase}: traced FLOPs", flops, float(traced["flops"].sum()), None, "FLOP"))
        out.append(compare(f"{phase}: traced reads", _real(reads), float(traced[columns].sum().sum()), None, "B"))
        out.append(compare(f"{phase}: closed-form bytes", _real(reads), float(model[1]), None, "B"))
    return out


def spread_rows(some: pd.DataFrame, every: pd.DataFrame) -> list[Row]:
    """Representatives against every kernel counted: reads by phase, and the role that is off most."""
    out = []
    for phase in ("prefill", "decode"):
        sums = [_reads_by_role(table, phase) for table in (some, every)]
        both = pd.concat(sums, axis=1, keys=["some", "every"]).dropna()
        if both.empty or not both["every"].sum():
            out.append(Row(f"{phase}: representatives", MISSING, "no reads counted in both runs"))
            continue
        total = float(both["some"].sum() / both["every"].sum() - 1)
        off = (both["some"] - both["every"]).abs() / both["every"].sum()
        most = f"most off: {off.idxmax()} by {100 * off.max():.2f} % of the phase"
        words = f"reads {100 * total:+.2f} % of all counted; {most}"
        out.append(Row(f"{phase}: representatives", OK if abs(total) <= 0.05 else OFF, words))
    return out


def cache_rows(dynamic: Mapping[str, Any], static: Mapping[str, Any]) -> list[Row]:
    """Decode steps with the two caches, from two bare runs."""
    steps = [pd.Series(run["decode_step_ns"][-1]).median() / 1e6 for run in (dynamic, static)]
    words = f"median decode step {steps[0]:.3f} ms with DynamicCache, {steps[1]:.3f} ms with StaticCache"
    return [Row("caches", OK, words)]


def _reads_by_role(kernels: pd.DataFrame, phase: str) -> pd.Series[float]:
    rows = kernels[(kernels["phase"] == phase) & (kernels["bytes_source"] == "ncu")]
    sums: pd.Series[float] = rows.groupby(rows["module"].map(role_of))["dram_read_bytes"].sum()
    return sums


def _real(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
