"""From joined rows to the table `kernels.csv` of a counted run: placed on each clock separately.

Inside ncu: counted work over ncu's duration, against the report's roofs at its clock. On the timeline: the
same work over the true duration, against roofs at running clocks. The two never mix: the columns of KERNELS
are judged on one of them, which `clock` names, and both shares stand beside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from kernelroof.parsers.schema import ANALYZED, conform
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.evidence import hierarchy_words, null_reasons
from kernelroof.roofline.place import HEALTHY_PCT, SHORT_NS, moved_bytes, numbers, place, ratio
from kernelroof.roofline.report_ceilings import FROM_SHARES, ReportCeilings, row_roofs
from kernelroof.roofline.units import plain_type
from kernelroof.roofline.verdict import verdicts

NCU, TIMELINE = "ncu", "timeline"
_PLACED = (
    *(
        "intensity",
        "attained_flop_s",
        "attained_byte_s",
        "ideal_ns",
        "pct_of_roof",
        "recoverable_ns",
        "bound",
        "reason",
    ),
)
SM_FLOOR = "sm__instruction_throughput.avg.pct_of_peak_sustained_elapsed"
"""One of the parts whose largest is the SM share: where the share itself was not counted, it is at least this."""


class Roofs(NamedTuple):
    """The roofs of each clock; None where that clock has no rows."""

    ncu: ReportCeilings | None
    timeline: ReportCeilings | None


def with_floor(counters: pd.DataFrame, metrics: pd.DataFrame) -> pd.DataFrame:
    """Add `sm_pct_at_least` to counters from the metrics of their report."""
    known = numbers(counters["sm_pct"])
    floor = metrics[SM_FLOOR].to_numpy("float64") if SM_FLOOR in metrics else np.full(len(counters), np.nan)
    out: pd.DataFrame = counters.assign(sm_pct_at_least=np.where(np.isnan(known), floor, np.nan))
    return out


def place_counted(rows: pd.DataFrame, roofs: Roofs) -> pd.DataFrame:
    """The table ANALYZED of joined rows (`join.Joined.rows` or `join.counted_rows`), with verdicts."""
    inside = _placed(rows.assign(time_ns=rows["ncu_time_ns"]), roofs.ncu, own=True, clock=NCU)
    on_line = _placed(rows.assign(time_ns=rows["timeline_ns"]), roofs.timeline, own=False, clock=TIMELINE)
    has_timeline = bool(rows["timeline_ns"].notna().any())
    main = on_line if has_timeline else inside
    out = rows.copy()
    out["clock"] = TIMELINE if has_timeline else NCU
    out["time_ns"] = rows["timeline_ns"] if has_timeline else rows["ncu_time_ns"]
    out["recorded_ns"] = out["time_ns"]
    for name in (*_PLACED, "roof_type"):
        out[name] = main[name]
    if has_timeline:
        out["roof_type"] = main["roof_type"].fillna(inside["roof_type"])
    out["ncu_flop_s"], out["ncu_byte_s"] = inside["attained_flop_s"], _rate(rows, "dram")
    out["ncu_pct_of_roof"], out["ncu_bound"] = inside["pct_of_roof"], inside["bound"]
    dram = ratio(100 * numbers(out["ncu_byte_s"]), numbers(inside["roof_byte_s"]))
    found = roofs.ncu.memory.get("DRAM") if roofs.ncu is not None else None
    independent = found is None or found.clock != FROM_SHARES
    out["ncu_dram_roof_pct"] = dram if independent else np.nan
    for level in ("l2", "l1"):
        roof = roofs.ncu.memory.get(level.upper()) if roofs.ncu is not None else None
        peak = numbers(rows[f"peak_{level}_byte_s"])
        peak = np.where(np.isnan(peak) & (roof is not None), roof.rate if roof else np.nan, peak)
        out[f"ncu_{level}_roof_pct"] = ratio(100 * numbers(_rate(rows, level)), peak)
        out[f"intensity_{level}"] = ratio(numbers(rows["flops"]), numbers(rows[f"{level}_bytes"]))
    out["timeline_pct_of_roof"], out["timeline_bound"] = on_line["pct_of_roof"], on_line["bound"]
    if not has_timeline:
        out["timeline_bound"] = pd.NA
    out["ncu_bound"] = out["ncu_bound"].where(rows["joined"].notna())
    out["hierarchy"] = hierarchy_words(rows)
    out["caveat"] = _caveats(rows)
    out["shapes"], out["dtype"] = pd.NA, out["roof_type"].map(lambda t: plain_type(str(t)), na_action="ignore")
    counted = pd.Series("ncu", rows.index, dtype="string")
    out["flops_source"], out["bytes_source"] = counted.where(rows["flops"].notna()), counted.where(_has_bytes(rows))
    cures, sentences = verdicts(out)
    out["cure"], out["verdict"] = cures, sentences
    # Groups and idle time are known where a timeline and a trace of the run itself met.
    unknown = [c for c in ("idle_before_ns", "group", "group_flops", "group_bytes") if c not in out]
    return conform(out.assign(**dict.fromkeys(unknown, pd.NA)), ANALYZED, "kernels")


def _placed(rows: pd.DataFrame, found: ReportCeilings | None, *, own: bool, clock: str) -> pd.DataFrame:
    """Rows placed on one clock, bounds by shares where there are no figures to place."""
    roofs = row_roofs(rows, found, own=own) if found is not None else _no_roofs(rows)
    ready = pd.concat([rows, roofs], axis=1)
    ready["reason"], ready["bytes_source"] = null_reasons(rows), "ncu"
    main = found.ceilings() if found is not None else None
    stand_in = main or Ceilings("", 1.0, 1.0, None, "", "report", None, "")
    # A copy needs no compute roof: at no FLOPs any will do.
    idle = (numbers(rows["flops"]) == 0) & ready["roof_flop_s"].isna().to_numpy()
    ready["roof_flop_s"] = np.where(idle, 1.0, ready["roof_flop_s"])
    placed: pd.DataFrame = place(ready, stand_in)
    no_roof = ready[["roof_flop_s", "roof_byte_s"]].isna().any(axis=1).to_numpy(bool)
    figures = rows["flops"].notna().to_numpy(bool) & _has_bytes(rows).to_numpy(bool)
    placed.loc[no_roof, ["ideal_ns", "pct_of_roof", "recoverable_ns"]] = np.nan
    placed.loc[no_roof, "bound"] = "unknown"
    where = "the report has no peak for it" if own else "no roofs for the timeline's clock"
    lacking = f"{where}: name the GPU with --gpu, or give --peak-tflops and --bandwidth-gbs"
    placed.loc[no_roof & figures, "reason"] = lacking
    no_time = rows["time_ns"].isna().to_numpy(bool)
    placed.loc[no_time, "bound"] = "unknown"
    placed.loc[no_time & figures, "reason"] = f"no duration in the {'report' if own else 'recording'}"
    return _by_shares(placed, rows) if clock == NCU else placed


def _by_shares(placed: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Where figures can't be placed, the bound by the report's own percentages, and said so."""
    dram, sm = numbers(rows["dram_pct"]), numbers(rows["sm_pct"])
    words = placed["reason"].astype("string").fillna("")
    doubtful = words.str.startswith(("impossible", "inconsistent")).to_numpy(bool)
    judged = (placed["bound"] == "unknown").to_numpy(bool) & ~doubtful & ~np.isnan(dram) & ~np.isnan(sm)
    busy = np.fmax(dram, sm) >= HEALTHY_PCT
    waves, time_ns = numbers(rows["waves_per_sm"]), numbers(rows["time_ns"])
    start_up = (waves < 1) | (time_ns < SHORT_NS)
    bound = np.where(dram >= sm, "memory", "compute").astype(object)
    bound[~busy] = np.where(start_up, "latency", "inefficient")[~busy]
    out: pd.DataFrame = placed.copy()
    out["bound"] = placed["bound"].astype(object).where(~judged, pd.Series(bound, placed.index)).astype("string")
    said = "bound from the report's percentages; " + words
    out["reason"] = placed["reason"].where(~judged, said.str.removesuffix("; "))
    return out


def _no_roofs(rows: pd.DataFrame) -> pd.DataFrame:
    nothing = pd.Series(np.nan, rows.index)
    out: pd.DataFrame = pd.DataFrame(
        {"roof_flop_s": nothing, "roof_type": nothing.astype("string"), "roof_byte_s": nothing}
    )
    return out


def _has_bytes(rows: pd.DataFrame) -> pd.Series[bool]:
    known: pd.Series[bool] = pd.Series(~np.isnan(moved_bytes(rows)), rows.index, dtype="bool")
    return known


def _rate(rows: pd.DataFrame, level: str) -> pd.Series[float]:
    moved = moved_bytes(rows) if level == "dram" else numbers(rows[f"{level}_bytes"])
    rate: pd.Series[float] = pd.Series(ratio(moved * 1e9, numbers(rows["ncu_time_ns"])), rows.index)
    return rate


def _caveats(rows: pd.DataFrame) -> pd.Series[str]:
    """What limits the figures of each row, besides what made one null."""
    had = rows["caveat"].astype("string").fillna("")
    upper = rows["flops_upper_bound"].astype("boolean").fillna(False)
    flops_said = null_reasons(rows, "flops").where(rows["flops"].notna(), "").fillna("")
    unwritten = (rows["dram_write_bytes"] == 0).fillna(False) & (rows["dram_read_bytes"] > 0).fillna(False)
    parts = [
        had,
        pd.Series(np.where(upper, "packed half instructions in the FLOPs: at most so many", ""), rows.index),
        flops_said.map(lambda w: f"FLOPs: {w}" if w else ""),
        pd.Series(
            np.where(unwritten, "0 B written to DRAM: what it wrote left L2 later; judge its traffic by reads", ""),
            rows.index,
        ),
    ]
    joined = [("; ".join(p for p in row if p)) or None for row in zip(*parts, strict=True)]
    column: pd.Series[str] = pd.Series(joined, rows.index, dtype="string")
    return column
