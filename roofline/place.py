"""Placing kernels under the roofs: intensity, share of the roof, recoverable time, and what bounds them.

Missing is null with a reason; nothing here turns a missing or absurd number into a healthy one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from kernelroof.models.errors import ReportError
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.units import plain_type, quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

BOUNDS = ("compute", "memory", "latency", "inefficient", "unknown")
HEALTHY_PCT = 60.0
"""At this share of its roof or above, a kernel is bound by that roof."""
SHORT_NS = 10_000
"""Below this duration a kernel far from its roof is bound by latency: start-up, not throughput."""
TOLERANCE_PCT = 105.0
"""Up to here a point above its roof is noise of the measurement; beyond, it is evidence of something."""
_NEEDED = ("time_ns", "flops", "dram_read_bytes", "dram_write_bytes", "count")
GROUP = ["phase", "step", "module", "group"]
"""What tells groups of kernels that are one op."""
_FEW_WAVES = "less than one wave per SM"
BOTH_WAYS = "dram_bytes"
"""Optional column: read + written bytes, for rows where only their sum was counted."""


def place(rows: pd.DataFrame, ceilings: Ceilings) -> pd.DataFrame:
    """Return `rows` with the placing columns of `parsers.schema.KERNELS` added or replaced.

    Args:
        rows: one launch (or representative of `count` launches) a row: `time_ns`, `flops`,
            `dram_read_bytes`, `dram_write_bytes` of one launch (null where not known), `count`;
            optional `reason` (kept), `waves_per_sm`, `grid` ("x,y,z"), `bytes_source`, `dram_bytes` (where
            only the sum is known) and `roof_flop_s`, `roof_byte_s` (each row's own roofs, at its own clock),
            `roof_type` (the type whose peak `roof_flop_s` is).
        ceilings: roofs on the same clock as `time_ns`.

    Returns:
        A copy with `intensity` (FLOP/B), `attained_flop_s`, `attained_byte_s`, `ideal_ns` =
        max(FLOPs / peak, bytes / bandwidth), `pct_of_roof` = 100 ideal / time, `recoverable_ns` =
        max(0, time - ideal) * count, `bound` and `reason`. `recoverable_ns` is null where the figures are
        missing or impossible.

    Raises:
        ReportError: a needed column is missing.
    """
    missing = [c for c in _NEEDED if c not in rows.columns]
    if missing:
        raise ReportError(f"kernels can't be placed without {', '.join(missing)}", "Record the run again.")
    out: pd.DataFrame = rows.copy()
    time_ns, flops = numbers(rows["time_ns"]), numbers(rows["flops"])
    moved = moved_bytes(rows)
    own = [numbers(rows[c]) if c in rows else None for c in ("roof_flop_s", "roof_byte_s")]
    peak, bandwidth = (ceilings.flop_s if own[0] is None else own[0], ceilings.byte_s if own[1] is None else own[1])
    known = ~np.isnan(flops) & ~np.isnan(moved)
    timed = known & (time_ns > 0)
    compute_ns, memory_ns = flops / peak * 1e9, moved / bandwidth * 1e9
    ideal_ns = np.where(known, np.fmax(compute_ns, memory_ns), np.nan)
    pct = ratio(100 * ideal_ns, time_ns)

    out["intensity"] = _nullable(ratio(flops, moved), rows)
    flop_s, byte_s = ratio(flops * 1e9, time_ns), ratio(moved * 1e9, time_ns)
    out["attained_flop_s"], out["attained_byte_s"] = _nullable(flop_s, rows), _nullable(byte_s, rows)
    out["ideal_ns"] = _nullable(ideal_ns, rows)
    out["pct_of_roof"] = _nullable(pct, rows)

    by_compute = compute_ns >= memory_ns
    few_waves = numbers(rows["waves_per_sm"]) < 1 if "waves_per_sm" in rows else np.zeros(len(rows), bool)
    short = (time_ns < SHORT_NS) | few_waves
    bound = np.where(by_compute, "compute", "memory").astype(object)
    reason = np.full(len(rows), "", dtype=object)

    below = timed & (pct < HEALTHY_PCT)
    bound[below & short] = "latency"
    reason[below & short] = f"under {HEALTHY_PCT:g} % of its roof in under {SHORT_NS // 1000} µs"
    reason[below & few_waves] = f"under {HEALTHY_PCT:g} % of its roof with {_FEW_WAVES}"
    bound[below & ~short] = "inefficient"
    reason[below & ~short] = f"under {HEALTHY_PCT:g} % of its roof though it runs long enough"

    no_bytes = known & (moved == 0) & (flops > 0)
    reason[no_bytes] = _joined(reason[no_bytes], "0 bytes: no intensity; judged by the compute roof")
    idle = known & (moved == 0) & (flops == 0)
    bound[idle], reason[idle] = "latency", "no work: dispatch only"

    above = timed & (pct > TOLERANCE_PCT)
    # Also where its bytes are above their roof by more: no cache explains FLOPs beyond the peak.
    impossible = timed & (100 * compute_ns > TOLERANCE_PCT * time_ns)
    counted = (rows["bytes_source"] == "ncu").fillna(False).to_numpy(bool) if "bytes_source" in rows else False
    overcounted = above & ~impossible & counted
    resident = above & ~impossible & ~overcounted
    lone = _one_block(rows) & timed & (pct >= HEALTHY_PCT) & ~above & ~idle
    bound[impossible | overcounted | lone] = "unknown"
    kinds = rows["roof_type"] if "roof_type" in rows else pd.Series(pd.NA, rows.index)
    for kind in kinds[impossible].unique():
        named = ceilings if pd.isna(kind) else ceilings._replace(dtype=plain_type(str(kind)))
        own_kind = impossible & (kinds.isna() if pd.isna(kind) else kinds == kind).fillna(False).to_numpy(bool)
        _tell(reason, own_kind, ratio(100 * compute_ns, time_ns), flop_s, _above_compute(named))
    _tell(reason, overcounted, pct, byte_s, _above_counted(ceilings))
    _tell(reason, resident, pct, byte_s, _above_memory(ceilings))
    reason[lone] = "inconsistent: a single block can't draw this share of the machine; check bytes and FLOPs"

    bound[~timed & ~idle] = "unknown"
    charged = numbers(rows["recorded_ns"]) > 0 if "recorded_ns" in rows else np.zeros(len(rows), bool)
    reason[known & ~timed & ~idle] = "recorded duration is 0 ns"
    reason[known & ~timed & ~idle & charged] = "all of its recorded time was the profiler's own"
    had = rows["reason"].astype("string").fillna("") if "reason" in rows else pd.Series("", rows.index)
    reason[~known] = _what_is_missing(had.to_numpy(object), flops, moved)[~known]
    recoverable = np.maximum(time_ns - ideal_ns, 0) * numbers(rows["count"])
    recoverable[impossible | overcounted | lone | (known & ~timed & ~idle)] = np.nan
    out["recoverable_ns"] = _nullable(recoverable, rows)
    out["bound"] = pd.Series(bound, rows.index, dtype="string")
    out["reason"] = _merged(had.to_numpy(object), reason, rows.index)
    return out


def place_again(placed: pd.DataFrame, ceilings: Ceilings) -> pd.DataFrame:
    """Place kernels of kernels.csv under other roofs than those they were placed under; for their sums.

    What the old roofs said is dropped, also of rows without figures. kernels.csv tells of waves per SM in a reason.
    """
    few = placed["reason"].astype("string").str.contains(_FEW_WAVES, regex=False).fillna(False).to_numpy(bool)
    waves = np.where(few, 0.5, np.nan)
    again = place(placed.assign(reason=None, waves_per_sm=waves), ceilings)
    found: pd.DataFrame = again[placed.columns]
    return found


def above_compute(placed: pd.DataFrame) -> bool:
    """Whether launches above the compute roof hold more than 1 % of the time: the roof is too low, or FLOPs wrong."""
    spent = numbers(placed["time_ns"]) * numbers(placed["count"])
    impossible = placed["reason"].astype("string").str.startswith("impossible").fillna(False).to_numpy(bool)
    return bool(spent[impossible].sum() > 0.01 * spent.sum())


def _above_compute(ceilings: Ceilings) -> Callable[[float, float], str]:
    check = (
        "check that the machine was idle while its ceilings were measured, and over-counted FLOPs"
        if ceilings.origin == "measured"
        else "check the dtype (tensor-core or plain peak), sparse against dense peak, over-counted FLOPs, the GPU named"
    )
    return lambda pct, rate: (
        f"impossible: {pct:.0f} % of the compute peak ({quantity(rate, 'FLOP/s', 3)} of "
        f"{quantity(100 * rate / pct, 'FLOP/s', 3)} "
        f"{ceilings.dtype}, {ceilings.origin}); {check}"
    )


def _above_memory(ceilings: Ceilings) -> Callable[[float, float], str]:
    roof, cache = quantity(ceilings.byte_s, "B/s", 3), ceilings.cache_byte_s

    def words(pct: float, rate: float) -> str:
        start = f"cache-resident: {quantity(rate, 'B/s', 3)} is {pct:.0f} % of the DRAM roof ({roof})"
        if cache is None:
            return f"{start}; cache bandwidth not known"
        if rate <= cache * TOLERANCE_PCT / 100:
            return f"{start}, within the cache bandwidth ({quantity(cache, 'B/s', 3)})"
        return (
            f"{start} and above the cache bandwidth too ({quantity(cache, 'B/s', 3)}): a nearer cache, or "
            "bytes that never move"
        )

    return words


def whole_above_memory(pct: float, rate: float, ceilings: Ceilings) -> str:
    """Why launches together reach more than the DRAM roof, where each by itself may not tell."""
    low = "; or the roof was measured too low" if ceilings.origin == "measured" else ""
    return _above_memory(ceilings)(pct, rate) + low


def _above_counted(ceilings: Ceilings) -> Callable[[float, float], str]:
    return lambda pct, rate: (
        f"inconsistent: counted DRAM bytes at {quantity(rate, 'B/s', 3)} are {pct:.0f} % of the DRAM roof "
        f"({quantity(100 * rate / pct, 'B/s', 3)}, {ceilings.origin}); check the GPU named, clocks, and that bytes "
        "and duration are of the same launch"
    )


def _tell(
    reason: NDArray[np.object_],
    mask: NDArray[np.bool_],
    pct: NDArray[np.float64],
    rate: NDArray[np.float64],
    words: Callable[[float, float], str],
) -> None:
    """Write a reason with its figures into the rows of `mask`, which are few."""
    for row in np.flatnonzero(mask):
        reason[row] = words(float(pct[row]), float(rate[row]))


def _one_block(rows: pd.DataFrame) -> NDArray[np.bool_]:
    if "grid" not in rows:
        return np.zeros(len(rows), bool)
    grid = rows["grid"].astype("string").str.replace(" ", "").str.strip("()")
    return (grid == "1,1,1").fillna(False).to_numpy(bool)


def _what_is_missing(
    had: NDArray[np.object_], flops: NDArray[np.float64], moved: NDArray[np.float64]
) -> NDArray[np.object_]:
    """The reason for null numbers: the one that came with the row, else which of them is missing."""
    words: NDArray[np.object_] = np.full(len(flops), "", dtype=object)
    words[np.isnan(flops)] = "FLOPs not known"
    words[np.isnan(moved)] = "bytes not known"
    words[np.isnan(flops) & np.isnan(moved)] = "FLOPs and bytes not known"
    words[had != ""] = ""
    return words


def _merged(had: NDArray[np.object_], new: NDArray[np.object_], index: pd.Index) -> pd.Series[str]:
    merged = [b if not a or a == b else a if not b or b in a else f"{a}; {b}" for a, b in zip(had, new, strict=True)]
    column: pd.Series[str] = pd.Series([m or None for m in merged], index, dtype="string")
    return column


def _joined(reasons: NDArray[np.object_], more: str) -> list[str]:
    return [f"{r}; {more}" if r else more for r in reasons]


def moved_bytes(rows: pd.DataFrame) -> NDArray[np.float64]:
    """Bytes of memory traffic of one launch: read + written, else their counted sum; NaN where not known."""
    both = numbers(rows["dram_read_bytes"]) + numbers(rows["dram_write_bytes"])
    return np.where(np.isnan(both), numbers(rows[BOTH_WAYS]), both) if BOTH_WAYS in rows else both


def shared_work(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Which rows have FLOPs and bytes only together with the others of their GROUP: one op in several kernels.

    Where one of the group has them for itself, the others only prepare it (a memset beside a product).
    """
    if not {*GROUP, "group_flops", "group_bytes"} <= set(rows.columns):
        return np.zeros(len(rows), dtype=bool)
    own = rows["flops"].notna()
    taken = own.groupby([rows[name] for name in GROUP], sort=False, dropna=False).transform("any")
    known = rows["group"].notna() & rows["group_flops"].notna() & rows["group_bytes"].notna()
    shared: NDArray[np.bool_] = (known & ~taken).to_numpy(bool)
    return shared


def numbers(column: pd.Series[float]) -> NDArray[np.float64]:
    """A nullable column as float64 with NaN for null."""
    values: NDArray[np.float64] = column.astype("Float64").to_numpy(dtype="float64", na_value=np.nan)
    return values


def ratio(top: NDArray[np.float64], under: NDArray[np.float64]) -> NDArray[np.float64]:
    """top / under, NaN where `under` is 0 or either is unknown."""
    quotient: NDArray[np.float64] = np.full(len(top), np.nan)
    return np.divide(top, under, out=quotient, where=under > 0)


def _nullable(values: NDArray[np.float64], rows: pd.DataFrame) -> pd.Series[float]:
    column: pd.Series[float] = pd.Series(values, rows.index, dtype="float64")
    return column


def aggregate(frame: pd.DataFrame, by: str | Sequence[str]) -> pd.DataFrame:
    """Sum launches into groups, then divide: never a mean of intensities or of shares.

    Args:
        frame: rows as for `place`; placed rows give the placing columns too.
        by: column or columns to group by; null keys form a group of their own.

    Returns:
        One row a group, in order of first appearance: the keys, `launches` and `time_ns` (all of them),
        `flops`, `dram_read_bytes`, `dram_write_bytes`, `bytes` (summed over launches that have both
        FLOPs and bytes, null if none has), `unplaced` and `unplaced_ns` (launches lacking one, and their
        time), `intensity`, `attained_flop_s`, `attained_byte_s` (over the time of the launches summed);
        from placed rows also `ideal_ns`, `pct_of_roof` = 100 * sum of ideal / their time,
        `recoverable_ns`, and `bound` with `reason`: those that hold for most of the group's time.
    """
    keys = [by] if isinstance(by, str) else list(by)
    count, time_ns = numbers(frame["count"]), numbers(frame["time_ns"])
    flops = numbers(frame["flops"])
    moved = moved_bytes(frame)
    known = ~np.isnan(flops) & ~np.isnan(moved)
    work = frame[keys].copy()
    work["launches"] = frame["count"].astype("Int64")
    work["time_ns"] = frame["time_ns"].astype("Int64") * work["launches"]
    # Integers stay integers: a sum of FLOPs must be right to the last digit.
    for name in ("flops", "dram_read_bytes", "dram_write_bytes"):
        work[name] = (frame[name].astype("Int64") * work["launches"]).where(known)
    work["bytes"] = (pd.Series(moved, frame.index).astype("Int64") * work["launches"]).where(known)
    work["unplaced"] = work["launches"].where(~known, 0)
    work["unplaced_ns"] = work["time_ns"].where(~known, 0)
    placed = "bound" in frame.columns
    if placed:
        work["ideal_ns"] = numbers(frame["ideal_ns"]) * count
        work["recoverable_ns"] = numbers(frame["recoverable_ns"])
    grouped = work.groupby(keys, sort=False, dropna=False)
    out: pd.DataFrame = grouped.sum(min_count=1).reset_index()
    summed_ns = numbers(out["time_ns"]) - numbers(out["unplaced_ns"])
    total_flops, total_bytes = numbers(out["flops"]), numbers(out["bytes"])
    out["intensity"] = ratio(total_flops, total_bytes)
    out["attained_flop_s"] = ratio(total_flops * 1e9, summed_ns)
    out["attained_byte_s"] = ratio(total_bytes * 1e9, summed_ns)
    if placed:
        out["pct_of_roof"] = ratio(100 * numbers(out["ideal_ns"]), summed_ns)
        out = out.merge(_verdicts(frame, keys, count * time_ns), on=keys, how="left", validate="1:1")
    return out


def _verdicts(frame: pd.DataFrame, keys: list[str], weight_ns: NDArray[np.float64]) -> pd.DataFrame:
    """Per group the bound that holds for most of its time, and the reason that does so within it."""
    work = frame[[*keys, "bound", "reason"]].copy()
    work["weight_ns"] = weight_ns
    bounds = heaviest(work, keys, "bound")
    reasons = heaviest(work, [*keys, "bound"], "reason")
    verdicts: pd.DataFrame = bounds.merge(reasons, on=[*keys, "bound"], how="left", validate="1:1")
    return verdicts


def heaviest(work: pd.DataFrame, keys: list[str], value: str) -> pd.DataFrame:
    """Per group the value of a column that holds for most of its `weight_ns`: the keys and that column."""
    sums = work.groupby([*keys, value], sort=False, dropna=False)["weight_ns"].sum().reset_index()
    ordered = sums.sort_values(by="weight_ns", ascending=False, kind="stable")
    best: pd.DataFrame = ordered.drop_duplicates(keys)[[*keys, value]]
    return best
