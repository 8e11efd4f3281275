"""The ceilings of a counted run: out of the report itself, else from the GPU table, else the user's.

A report's peaks are dense and at the clock at which it was taken, which ncu locks to the base clock
unless told not to: far below the datasheet's. So every roof keeps its origin and its clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from kernelroof.models.errors import UsageError
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.gpus import Gpu, peak_for
from kernelroof.roofline.place import numbers, ratio
from kernelroof.roofline.units import plain_type, quantity

_PEAK_COLUMNS = {"DRAM": "peak_dram_byte_s", "L2": "peak_l2_byte_s", "L1": "peak_l1_byte_s"}
_TABLE_DTYPES = {
    "tensor:bf16": "bfloat16",
    "tensor:fp16": "float16",
    "tensor:tf32": "tf32",
    "tensor:fp8": "fp8",
    "tensor:int8": "int8",
    "tensor:fp4": "fp4",
    "fp32": "float32",
}
_TYPE_OF_DTYPE = {"bfloat16": "tensor:bf16", "float16": "tensor:fp16", "float32": "fp32", "tf32": "tensor:tf32"}
_HEADLINES = ("tensor:bf16", "tensor:fp16", "fp32")
FROM_SHARES = "bytes/s over its DRAM %"
"""The clock of a DRAM roof that was found from rates and their share of it: no independent figure."""
_LEAST_PCT = 5.0
"""DRAM shares below this, or below half of the highest, are too coarse to find the peak from."""


class Roof(NamedTuple):
    """One ceiling: FLOP/s or bytes/s, where it comes from and at which clock it holds."""

    rate: float
    origin: str
    """report, datasheet or given"""
    clock: str
    """"SM at 1.09 GHz", "boost", ... """

    @property
    def source(self) -> str:
        """Origin and clock in words, each said once."""
        return self.origin if self.clock == self.origin else f"{self.origin} ({self.clock})"


class ReportCeilings(NamedTuple):
    """What one GPU can do at most on one clock."""

    gpu: str
    memory: dict[str, Roof]
    """by level: DRAM, L2, L1"""
    compute: dict[str, Roof]
    """dense, by type: fp32, tensor:bf16->fp32, ..."""
    per_sm_cycle: dict[str, float]
    """the same in FLOP per SM and cycle; only what the report has"""
    sm_count: int | None
    sm_clock_hz: float | None
    notes: tuple[str, ...]

    def of_type(self, name: str) -> Roof | None:
        """The compute roof of a type; a type without destination finds that of its source type."""
        found = find_type(name, self.compute)
        return None if found is None else self.compute[found]

    @property
    def headline(self) -> str | None:
        """The type whose roof is drawn in any case: the one given or measured, else 16-bit tensor products or fp32."""
        own = next((name for name, roof in self.compute.items() if roof.origin in ("given", "measured")), None)
        return own or next((found for name in _HEADLINES if (found := find_type(name, self.compute))), None)

    def ceilings(self, kind: str | None = None) -> Ceilings | None:
        """As the one pair of roofs that placing and estimates take; None if DRAM or compute is not known."""
        kind = self.headline if kind is None else find_type(kind, self.compute)
        if kind is None or "DRAM" not in self.memory:
            return None
        compute, dram, l2 = self.compute[kind], self.memory["DRAM"], self.memory.get("L2")
        return Ceilings(
            name=self.gpu,
            flop_s=compute.rate,
            byte_s=dram.rate,
            cache_byte_s=l2.rate if l2 else None,
            dtype=plain_type(kind),
            origin=compute.origin,
            memory_bytes=None,
            note=f"{plain_type(kind)} dense, {compute.source}; DRAM {dram.source}",
        )


def find_type(name: str, known: Iterable[str]) -> str | None:
    """The key for a type among the known ones: itself, else one of the same source type."""
    keys = list(known)
    if name in keys:
        return name
    source = name.partition("->")[0]
    return next((key for key in keys if key.partition("->")[0] == source), None)


def read_ceilings(counters: pd.DataFrame, gpu: Gpu | None = None, given: Ceilings | None = None) -> ReportCeilings:
    """The ceilings at the clock of a counted run, of one GPU.

    Args:
        counters: the `counters` table (`kernelroof.parsers.schema.COUNTERS`); medians over its rows.
        gpu: the same GPU in the table, for what the report lacks.
        given: the user's own figures, for what neither has.
    """
    clock = _median(counters["sm_clock_hz"])
    at = f"SM at {quantity(clock, 'Hz', 3)}" if clock else "clock not in the report"
    notes = []
    memory = {
        level: Roof(rate, "report", "its DRAM clock" if level == "DRAM" else at)
        for level, column in _PEAK_COLUMNS.items()
        if (rate := _median(counters[column])) is not None
    }
    if "DRAM" not in memory and (derived := _from_shares(counters)) is not None:
        memory["DRAM"] = Roof(derived, "report", FROM_SHARES)
        notes.append("the DRAM roof is the report's bytes per second over its own DRAM percentage")
    compute = {name: Roof(rate, "report", at) for name, rate in _json_medians(counters["peak_flop_s"]).items()}
    spread = numbers(counters["sm_clock_hz"])
    if clock and np.nanmax(spread) > 1.02 * np.nanmin(spread):
        low, high = (quantity(float(f(spread)), "Hz", 3) for f in (np.nanmin, np.nanmax))
        judged = "; each is judged at its own, the median is drawn" if compute else ""
        notes.append(f"SM clock of the counted kernels: {low} to {high}{judged}")
    name = next((str(g) for g in counters["gpu"].dropna()), "")
    sheet = sheet_ceilings(gpu, given)
    lacking = [
        plain_type(t) for t, r in sheet.compute.items() if r.origin == "datasheet" and find_type(t, compute) is None
    ]
    if lacking:
        notes.append(
            f"peaks that the report lacks are the datasheet's, at boost clock: {', '.join(dict.fromkeys(lacking))}"
        )
    if "DRAM" not in memory and "DRAM" not in sheet.memory:
        notes.append("no DRAM roof: the report has no peak; name the GPU with --gpu, or give --bandwidth-gbs")
    compute.update({t: roof for t, roof in sheet.compute.items() if find_type(t, compute) is None})
    if not compute:
        notes.append("no compute roof: the report has no peak; name the GPU with --gpu, or give --peak-tflops")
    sms = _median(counters["sm_count"])
    return ReportCeilings(
        gpu=name or sheet.gpu or "GPU not named in the report",
        memory={**sheet.memory, **memory},
        compute=compute,
        per_sm_cycle=_json_medians(counters["peak_flop_per_sm_cycle"]),
        sm_count=None if sms is None else int(sms),
        sm_clock_hz=clock,
        notes=tuple(notes),
    )


def sheet_ceilings(gpu: Gpu | None, given: Ceilings | None) -> ReportCeilings:
    """Ceilings at running clocks: figures given or measured, and for what they lack the GPU table.

    Args:
        gpu: the GPU in the table.
        given: the user's own figures, or roofs measured in the run; they go before the table's.
    """
    memory: dict[str, Roof] = {}
    compute: dict[str, Roof] = {}
    if gpu is not None:
        memory["DRAM"] = Roof(gpu.byte_s, "datasheet", "datasheet")
        for name, dtype in _TABLE_DTYPES.items():
            try:
                compute[name] = Roof(peak_for(gpu, dtype), "datasheet", "boost clock")
            except UsageError:
                continue
    notes: tuple[str, ...] = ()
    if given is not None:
        lacking = list(dict.fromkeys(plain_type(t) for t in compute))
        clock = "running clocks" if given.origin == "measured" else "as given"
        memory["DRAM"] = Roof(given.byte_s, given.origin, clock)
        name = _TYPE_OF_DTYPE.get(given.dtype, f"tensor:{given.dtype}")
        compute[name] = Roof(given.flop_s, given.origin, clock)
        lacking = [t for t in lacking if t != plain_type(name)]
        notes = (f"peaks that were not {given.origin} are the datasheet's: {', '.join(lacking)}",) if lacking else ()
    label = gpu.product if gpu is not None else given.name if given is not None else ""
    return ReportCeilings(label, memory, compute, {}, None, None, notes)


def row_roofs(rows: pd.DataFrame, found: ReportCeilings, *, own: bool) -> pd.DataFrame:
    """Each launch's own roofs: `roof_flop_s`, `roof_type`, `roof_byte_s`; null where not known.

    The compute roof is that of the launch's own mix of types: its FLOPs over the time that the busiest pipe
    needs for its part, so pipes may overlap and no launch is held to a peak of a pipe that it does not use.
    Where a type without a known peak may be the busiest, the roof is not known.

    Args:
        rows: with `flops_by_type`, and where `own` also `peak_flop_s` and `peak_dram_byte_s`.
        own: prefer the peaks of the row itself (its own clock) over the medians in `found`.
    """
    headline = found.headline
    medians = tuple((name, roof.rate) for name, roof in found.compute.items())
    types = [None if pd.isna(v) else str(v) for v in rows["flops_by_type"]]
    peaks = [None if pd.isna(v) else str(v) for v in rows["peak_flop_s"]] if own else [None] * len(rows)
    mixes = [_mix(t, p, medians, headline) for t, p in zip(types, peaks, strict=True)]
    dram = found.memory.get("DRAM")
    median = np.full(len(rows), np.nan if dram is None else dram.rate)
    byte_s = numbers(rows["peak_dram_byte_s"]) if own else median
    out: pd.DataFrame = pd.DataFrame(
        {
            "roof_flop_s": pd.Series([m[0] for m in mixes], rows.index, dtype="float64"),
            "roof_type": pd.Series([m[1] for m in mixes], rows.index, dtype="string"),
            "roof_byte_s": pd.Series(np.where(np.isnan(byte_s), median, byte_s), rows.index, dtype="float64"),
        }
    )
    return out


def peaks_at(rows: pd.DataFrame, clock_hz: pd.Series[float]) -> pd.DataFrame:
    """Rows of counters with the peaks that hang on the SM clock brought to another one; same where none is known.

    Args:
        rows: with `sm_clock_hz`, `peak_flop_s`, `peak_l1_byte_s`.
        clock_hz: SM clock of the run that their duration is of, same index.
    """
    factor = ratio(numbers(clock_hz), numbers(rows["sm_clock_hz"]))
    factor = np.where(np.isnan(factor), 1.0, factor)
    texts = [
        text if pd.isna(text) or f == 1.0 else json.dumps({k: round(v * f) for k, v in _loads(str(text)).items()})
        for text, f in zip(rows["peak_flop_s"], factor, strict=True)
    ]
    out: pd.DataFrame = rows.assign(
        peak_flop_s=pd.array(texts, dtype="string"), peak_l1_byte_s=numbers(rows["peak_l1_byte_s"]) * factor
    )
    return out


@lru_cache(maxsize=4096)
def _mix(
    by_type: str | None, own: str | None, medians: tuple[tuple[str, float], ...], headline: str | None
) -> tuple[float, str | None]:
    """Effective peak of a mix of types, and the type that needs most time."""
    known: Mapping[str, float] = {**dict(medians), **(_loads(own) if own else {})}
    parts = {k: v for k, v in (_loads(by_type) if by_type else {}).items() if v > 0}
    times = {t: f / known[key] for t, f in parts.items() if (key := find_type(t, known)) is not None}
    if not parts:
        key = find_type(headline, known) if headline else None
        return (known[key] if key else float("nan")), None
    if not times:
        return float("nan"), max(parts, key=lambda t: parts[t])
    busiest = max(times, key=lambda t: times[t])
    longest = {t: f / _slowest(t, known) for t, f in parts.items() if t not in times}
    heaviest = max(longest, key=lambda t: longest[t], default=busiest)
    if longest.get(heaviest, 0.0) > times[busiest]:
        return float("nan"), heaviest
    return sum(parts.values()) / times[busiest], busiest


def _slowest(name: str, known: Mapping[str, float]) -> float:
    """The least that the peak of a type may be which is not among the known ones.

    No GPU does single precision at less than a 64th of its slowest tensor peak, nor double precision at less
    than a 64th of single; every other type is at least as fast as single precision.
    """
    single = known.get("fp32", min(known.values()) / 64)
    return single / 64 if "fp64" in name else single


@lru_cache(maxsize=4096)
def _loads(text: str) -> dict[str, float]:
    return {str(k): float(v) for k, v in json.loads(text).items()}


def _json_medians(column: pd.Series[str]) -> dict[str, float]:
    """The median of each key over rows of JSON objects."""
    values: dict[str, list[float]] = {}
    for text in column.dropna():
        for name, value in _loads(str(text)).items():
            values.setdefault(name, []).append(value)
    return {name: float(np.median(all_)) for name, all_ in values.items()}


def _median(column: pd.Series[float]) -> float | None:
    values = numbers(column)
    values = values[~np.isnan(values) & (values > 0)]
    return float(np.median(values)) if len(values) else None


def _from_shares(counters: pd.DataFrame) -> float | None:
    """The DRAM peak from rates and their share of it, where the report gives both."""
    pct = numbers(counters["dram_pct"])
    rate = ratio(numbers(counters["dram_bytes"]) * 1e9, numbers(counters["time_ns"]))
    known = ~np.isnan(pct) & ~np.isnan(rate) & (rate > 0)
    good = known & (pct >= max(_LEAST_PCT, 0.5 * float(pct[known].max(initial=0.0))))
    return float(np.median(rate[good] / (pct[good] / 100))) if good.any() else None
