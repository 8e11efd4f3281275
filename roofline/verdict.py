"""One sentence for each kernel: what bounds it, and which kind of change would help.

A cure is one of `CURES`, or null where the evidence names none. Evidence that contradicts itself is said
to be inconsistent, and then no cure is named. Shares are named with the clock that they are of.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.roofline.join import RATIO_FLAG
from kernelroof.roofline.place import HEALTHY_PCT
from kernelroof.roofline.units import fixed, seconds

CURES = ("fewer bytes", "better reuse", "more parallelism", "tensor cores", "fusion", "nothing")
NOT_COUNTED = "not judged: not counted"
"""The sentence of a launch that has a duration and no counters."""
_DOUBTFUL = ("impossible", "inconsistent")
_DISAGREE_PCT = 10.0
"""Points by which the report's DRAM share and that of its bytes may differ."""
_AT_ROOF_PCT = 80.0
_LOW_OCCUPANCY_PCT = 40.0
_PRODUCT = re.compile(r"gemm|gemv|matmul|cutlass|cublas|xmma|wgmma|nvjet|splitK|conv(?!ert)", re.I)
_ATTENTION = re.compile(r"flash|fmha|attention|sdpa|pagedkv|\bmha", re.I)


class Evidence(NamedTuple):
    """What is known of one kernel; None where it is not. Shares are percentages."""

    kernel: str
    bound: str
    where: str
    """clock of the bound and of `pct`: "inside ncu" or "on the timeline" """
    pct: float | None
    reason: str
    time_ns: float | None
    intensity: float | None
    dram_pct: float | None
    own_dram_pct: float | None
    """of counted bytes over ncu's duration and the DRAM roof"""
    sm_pct: float | None
    tensor_pct: float | None
    l2_pct: float | None
    l1_pct: float | None
    occupancy_pct: float | None
    waves: float | None
    registers: float | None
    roof_type: str | None
    one_block: bool
    duration_ratio: float | None


def verdicts(rows: pd.DataFrame) -> tuple[pd.Series[str], pd.Series[str]]:
    """Cure and sentence of each row of the table ANALYZED (its other columns suffice)."""
    names = list(_COLUMNS)
    known: dict[Evidence, tuple[str | None, str]] = {}
    found = []
    table = {name: rows[name].tolist() for name in names}
    for at in range(len(rows)):
        evidence = _evidence({name: table[name][at] for name in names})
        if evidence not in known:
            known[evidence] = verdict(evidence)
        found.append(known[evidence])
    cures: pd.Series[str] = pd.Series([c for c, _ in found], rows.index, dtype="string")
    sentences: pd.Series[str] = pd.Series([s for _, s in found], rows.index, dtype="string")
    return cures, sentences


def verdict(e: Evidence) -> tuple[str | None, str]:
    """The cure and the sentence for one kernel."""
    doubt = inconsistency(e)
    if doubt:
        return None, doubt
    if e.bound not in _WORDS:
        return None, f"not judged: {e.reason or 'figures are missing'}"
    cure, words = _WORDS[e.bound](e)
    helps = f"; {cure} would help" if cure and cure != "nothing" else "; nothing would help much" if cure else ""
    flag = ""
    if e.duration_ratio is not None and not 1 / RATIO_FLAG <= e.duration_ratio <= RATIO_FLAG:
        flag = f" (ncu's duration is {fixed(e.duration_ratio, 3)} times the timeline's: another clock or cache state)"
    what, _, why = words.partition(": ")
    return cure, f"{what}{helps}{': ' if why else ''}{why}{flag}"


def inconsistency(e: Evidence) -> str:
    """What contradicts itself in the evidence, as a sentence; empty where nothing does."""
    if e.reason.startswith(_DOUBTFUL):
        return e.reason
    if e.one_block and e.dram_pct is not None and e.dram_pct >= HEALTHY_PCT:
        return f"inconsistent: a single block can't draw {_pct(e.dram_pct)} of DRAM; check which launch was counted"
    if e.dram_pct is not None and e.own_dram_pct is not None and abs(e.dram_pct - e.own_dram_pct) > _DISAGREE_PCT:
        return (
            f"inconsistent: the report says {_pct(e.dram_pct)} of DRAM, its bytes over its duration are "
            f"{_pct(e.own_dram_pct)} of the roof; check the GPU named and that both are of one pass"
        )
    return ""


def _memory(e: Evidence) -> tuple[str | None, str]:
    share = e.pct if e.pct is not None else e.dram_pct
    start = f"memory-bound, {_pct(share)} of the DRAM roof {e.where}"
    if _ATTENTION.search(e.kernel):
        return "fewer bytes", f"{start}: a narrower KV cache, or fewer KV heads"
    if _PRODUCT.search(e.kernel):
        return "fewer bytes", f"{start}: weights in a narrower type, or more tokens for each reading of them"
    each = f"at {e.intensity:.2g} FLOP a byte " if e.intensity and e.intensity >= 0.01 else ""
    return "fusion", f"{start}: {each}only fewer passes help; merged with a neighbour its data need not go through DRAM"


def _compute(e: Evidence) -> tuple[str | None, str]:
    if e.pct is None:
        start = f"the SMs are busy, {_pct(e.sm_pct)} {e.where}"
        if _product_without_tensor(e):
            return "tensor cores", f"{start}: a matrix product that leaves the tensor pipe idle"
        unknown = "whether with useful work, the FLOP counters would tell"
        return None, f"{start}; {unknown if e.intensity is None else 'without its peak the share is not known'}"
    start = f"compute-bound, {_pct(e.pct)} of the {_roof(e)} roof {e.where}"
    if _product_without_tensor(e):
        return "tensor cores", f"{start}: a matrix product on the CUDA cores"
    close = "at its roof, only a narrower type or less work" if e.pct >= _AT_ROOF_PCT else "near its roof"
    return "nothing", f"{start}: {close}"


def _latency(e: Evidence) -> tuple[str | None, str]:
    share = f", {_pct(e.pct)} of its roof {e.where}" if e.pct is not None else f", {_shares(e)} {e.where}"
    start = f"latency-bound{share}"
    if e.reason.startswith("no work"):
        return "fusion", f"no work to place {e.where}: only its launch costs"
    if e.waves is not None and e.waves < 1:
        return "more parallelism", f"{start}: {e.waves:.2g} waves of blocks leave SMs without work"
    short = f"in {seconds(e.time_ns / 1e9, 2)}" if e.time_ns else "being short"
    return "fusion", f"{start}: {short} starting up and draining dominate"


def _inefficient(e: Evidence) -> tuple[str | None, str]:
    share = f"{_pct(e.pct)} of its roof" if e.pct is not None else _shares(e)
    start = f"inefficient, {share} {e.where}"
    if _product_without_tensor(e):
        return "tensor cores", f"{start}: a matrix product that leaves the tensor pipe idle"
    if e.l2_pct is not None and e.l2_pct >= HEALTHY_PCT:
        return "better reuse", f"{start}: L2 is at {_pct(e.l2_pct)} of its roof; keep tiles in shared memory"
    if e.l1_pct is not None and e.l1_pct >= HEALTHY_PCT:
        return "better reuse", f"{start}: L1 is at {_pct(e.l1_pct)} of its roof; keep operands in registers"
    if e.sm_pct is not None and e.sm_pct >= HEALTHY_PCT:
        return None, f"{start}: the SMs are {_pct(e.sm_pct)} busy with other instructions than FLOPs (wider loads?)"
    if e.waves is not None and 1 <= e.waves < 2 and e.waves % 1 < 0.5:
        return "more parallelism", f"{start}: {fixed(e.waves, 3)} waves of blocks, so the last wave leaves SMs idle"
    if e.occupancy_pct is not None and e.occupancy_pct < _LOW_OCCUPANCY_PCT:
        held = f" at {e.registers:.0f} registers a thread" if e.registers else ""
        return "more parallelism", f"{start}: {_pct(e.occupancy_pct)} occupancy{held} hides little latency"
    return "more parallelism", f"{start}: neither DRAM nor the SMs are busy; more loads in flight"


_WORDS: dict[str, Callable[[Evidence], tuple[str | None, str]]] = {
    "memory": _memory,
    "compute": _compute,
    "latency": _latency,
    "inefficient": _inefficient,
}


def _product_without_tensor(e: Evidence) -> bool:
    """Whether a matrix product is known to leave the tensor pipe idle."""
    product = _PRODUCT.search(e.kernel) or _ATTENTION.search(e.kernel)
    if not product or re.search("gemv", e.kernel, re.I):
        return False
    if e.tensor_pct is not None:
        return e.tensor_pct < 1
    return e.roof_type == "fp32"


def _roof(e: Evidence) -> str:
    return "compute" if e.roof_type is None else e.roof_type.removeprefix("tensor:").partition("->")[0]


def _shares(e: Evidence) -> str:
    parts = [f"{name} {_pct(value)}" for name, value in (("DRAM", e.dram_pct), ("SM", e.sm_pct)) if value is not None]
    return " and ".join(parts) or "shares not known"


def _pct(value: float | None) -> str:
    if value is None:
        return "an unknown share"
    return f"{fixed(value, 2) if value < 10 else f'{value:.0f}'} %"


_COLUMNS = (
    *("kernel", "bound", "clock", "pct_of_roof", "reason", "time_ns", "intensity", "dram_pct", "ncu_dram_roof_pct"),
    *("sm_pct", "tensor_pct", "ncu_l2_roof_pct", "ncu_l1_roof_pct", "occupancy_pct", "waves_per_sm", "registers"),
    *("roof_type", "grid", "duration_ratio", "ncu_bound", "ncu_pct_of_roof", "ncu_time_ns"),
)


def _evidence(row: dict[str, Any]) -> Evidence:
    """The evidence of a row, on the clock that has a bound: the row's own, else ncu's.

    What contradicts itself on the row's own clock is not made good by the other one.
    """
    doubtful = str(row["reason"]).startswith(_DOUBTFUL)
    own = row["bound"] != "unknown" or pd.isna(row["ncu_bound"]) or row["ncu_bound"] == "unknown" or doubtful
    on_ncu = row["clock"] == "ncu" or not own
    return Evidence(
        kernel=str(row["kernel"]),
        bound=str(row["bound"] if own else row["ncu_bound"]),
        where="inside ncu" if on_ncu else "on the timeline",
        pct=_rounded(row["pct_of_roof"] if own else row["ncu_pct_of_roof"]),
        reason="" if pd.isna(row["reason"]) or not own else str(row["reason"]),
        time_ns=_rounded(row["ncu_time_ns"] if on_ncu else row["time_ns"]),
        intensity=_rounded(row["intensity"]),
        dram_pct=_rounded(row["dram_pct"]),
        own_dram_pct=_rounded(row["ncu_dram_roof_pct"]),
        sm_pct=_rounded(row["sm_pct"]),
        tensor_pct=_rounded(row["tensor_pct"]),
        l2_pct=_rounded(row["ncu_l2_roof_pct"]),
        l1_pct=_rounded(row["ncu_l1_roof_pct"]),
        occupancy_pct=_rounded(row["occupancy_pct"]),
        waves=_rounded(row["waves_per_sm"]),
        registers=_rounded(row["registers"]),
        roof_type=None if pd.isna(row["roof_type"]) else str(row["roof_type"]),
        one_block=str(row["grid"]).replace(" ", "") == "1,1,1",
        duration_ratio=_rounded(row["duration_ratio"]),
    )


def _rounded(value: Any) -> float | None:
    """To three digits, which is what sentences print; so equal sentences are made once."""
    if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
        return None
    return float(f"{float(value):.3g}")
