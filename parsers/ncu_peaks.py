"""The ceilings that a report carries itself: peak rates at the clock at which it was taken.

A plain tensor-op counter's `peak_sustained` is that of its fastest variant, which on chips with structured
sparsity is the sparse one: twice what a dense kernel can reach. So the dense peak comes from the
`_sparsity_off` counters (on Hopper from `op_hgmma`, the faster of its two instructions); where a chip has
sparsity and the report only the plain counter, the dense peak is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from kernelroof.parsers.metric_book import Book
from kernelroof.parsers.ncu_flops import OpsName, ops_names, type_key
from kernelroof.parsers.printed_numbers import Floats

_SPARSE_TYPES = ("fp16", "bf16", "tf32", "fp8", "int8", "int4", "fp4", "fp6")
_LEAST = 1e-6
_FMA = {"fp32": ("f", 2), "fp64": ("d", 2), "fp16": ("h", 4)}


class Peak(NamedTuple):
    """FLOP per SM and cycle, and FLOP/s of the chip at the report's SM clock; NaN where not known."""

    per_sm_cycle: Floats
    flop_s: Floats


@dataclass(frozen=True)
class Peaks:
    """Compute peaks by type (keys as in the FLOPs by type), and why a type that was collected has none."""

    by_type: dict[str, Peak]
    reasons: dict[str, str]


def bandwidth(book: Book, metric: str, unit_bytes: float, clock: str, *units: str) -> Floats:
    """Bytes per second at the report's clock: `metric`.sum.peak_sustained x bytes x clock; NaN if not known."""
    peak = book.get(f"{metric}.sum.peak_sustained", *units)
    hz = book.get(f"{clock}.avg.per_second", "hz")
    return book.nothing() if peak is None or hz is None else _roof(peak * unit_bytes * hz)


def compute_peaks(book: Book, sm_count: Floats, sm_clock_hz: Floats, cc_major: Floats) -> Peaks:
    """Dense compute peaks of each type that the report knows.

    Args:
        book: the report's metrics.
        sm_count: SMs of the chip, by row.
        sm_clock_hz: SM clock, by row.
        cc_major: compute capability before the dot, by row; NaN where not known.
    """
    out: dict[str, Peak] = {}
    reasons: dict[str, str] = {}
    for kind, (letter, weight) in _FMA.items():
        rate = _rate(book, f"sm__sass_thread_inst_executed_op_{letter}fma_pred_on", ("inst/cycle", ""), sm_count)
        if rate is not None:
            out[kind] = Peak(rate.per_sm_cycle * weight, rate.flop_s * weight * sm_clock_hz)
    names = {base: name for base, name in ops_names(book).items() if name.unit == "sm"}
    for src in dict.fromkeys(name.src for name in names.values()):
        mine = {base: name for base, name in names.items() if name.src == src}
        rates = [(mine[b], r) for b in mine if (r := _rate(book, b, ("1/cycle", ""), sm_count)) is not None]
        if not rates:
            continue
        found = _dense(src, rates, cc_major)
        out |= {key: Peak(rate.per_sm_cycle, rate.flop_s * sm_clock_hz) for key, rate in found.items()}
        if not found:
            reasons[type_key(src)] = "the report has only the peak of dense and sparse together"
    return Peaks(out, reasons)


def _rate(book: Book, base: str, units: tuple[str, ...], sm_count: Floats) -> Peak | None:
    """Peak per SM and cycle, and (in the second place) of the chip per cycle; None where the report has neither."""
    each, whole = (book.get(f"{base}.{rollup}.peak_sustained", *units) for rollup in ("avg", "sum"))
    each = book.nothing() if each is None else _roof(each)
    whole = book.nothing() if whole is None else _roof(whole)
    rate = Peak(np.where(np.isnan(each), whole / sm_count, each), np.where(np.isnan(whole), each * sm_count, whole))
    return None if all(np.isnan(part).all() for part in rate) else rate


def _roof(values: Floats) -> Floats:
    """Peaks that can be a roof: nothing stays under one of 0, or of next to nothing."""
    return np.where(values >= _LEAST, values, np.nan)


def _dense(src: str, rates: list[tuple[OpsName, Peak]], cc_major: Floats) -> dict[str, Peak]:
    """Dense peaks of one source type, by key."""
    off = [(name, rate) for name, rate in rates if name.sparsity == "off"]
    if off:
        top = [(name, rate) for name, rate in off if not name.op]
        if top:
            return {type_key(src, name.dst): rate for name, rate in top}
        dsts = {name.dst for name, _ in off}
        best = Peak(*(np.fmax.reduce([rate[part] for _, rate in off]) for part in (0, 1)))
        return {type_key(src, dsts.pop() if len(dsts) == 1 else ""): best}
    plain = [(name, rate) for name, rate in rates if not name.sparsity]
    dense_chip = bool((cc_major < 8).all())
    if not plain or (not dense_chip and any(part in _SPARSE_TYPES for part in src.split("_"))):
        return {}
    top = [(name, rate) for name, rate in plain if not name.op] or plain
    return {type_key(src, name.dst): rate for name, rate in top}
