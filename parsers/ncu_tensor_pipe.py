"""Whether the tensor pipe did work that tensor-op counters should have seen.

On Ampere and Hopper the packed half instructions of the CUDA cores (HFMA2, which the compiler also uses to
move constants) run on the tensor pipe: half a cycle per warp instruction, seen in single-precision kernels
on A100 and H100. So an active pipe proves tensor work only beyond what the counted HFMA instructions explain.
"""

from __future__ import annotations

import re

import numpy as np
from kernelroof.parsers.metric_book import Book
from kernelroof.parsers.printed_numbers import Floats

_PIPE = re.compile(
    r"(?P<unit>sm|smsp)__(?P<inst>inst_executed_)?pipe_(?P<what>(?:tensor|tc)\w*?)(?P<cycles>_cycles_active)?\.(?P<rest>.+)"
)
_CYCLES_PER_HFMA = 0.5
_SLACK = 1.1
_PCT_ROUNDING = 0.005
_ELAPSED = "pct_of_peak_sustained_elapsed"
_ROLLUPS = (
    "sum",
    f"sum.{_ELAPSED}",
    f"avg.{_ELAPSED}",
    "avg",
    "sum.pct_of_peak_sustained_active",
    "avg.pct_of_peak_sustained_active",
)
_HFMA_PIPES = ("tensor", "tensor_op_hmma", "tensor_subpipe_hmma")


def unexplained_activity(book: Book) -> Floats:
    """1 where the tensor pipe did more than packed half instructions, 0 where it did not, NaN where nobody looked.

    Each counter of activity is judged by its most telling rollup: the sum, else a share of elapsed cycles.
    """
    hfma = np.nan_to_num(_warp_instructions(book))
    telling: dict[str, re.Match[str]] = {}
    for column in map(str, book.values.columns):
        found = _PIPE.fullmatch(column)
        if not found or found["rest"] not in _ROLLUPS or found["what"].endswith("_hfma2"):
            continue
        base = column.partition(".")[0]
        held = telling.get(base)
        if held is None or _ROLLUPS.index(found["rest"]) < _ROLLUPS.index(held["rest"]):
            telling[base] = found
    out = book.nothing()
    for found in telling.values():
        values = book.values[found[0]].to_numpy(dtype=np.float64)
        out = np.fmax(out, np.where(np.isnan(values), np.nan, _beyond(book, found, values, hfma)))
    return out


def _warp_instructions(book: Book) -> Floats:
    """Packed half instructions of the launch by warp: fma, and add and mul where they were counted."""
    total = book.nothing()
    for op in ("hfma", "hadd", "hmul"):
        names = [f"{unit}__sass_thread_inst_executed_op_{op}_pred_on" for unit in ("smsp", "sm")]
        pick = book.first([c for n in names for c in book.total(n, "inst")], names)
        total = np.where(np.isnan(total), pick.values, total + np.nan_to_num(pick.values))
    return np.asarray(total / 32, dtype=np.float64)


def _beyond(book: Book, found: re.Match[str], values: Floats, hfma: Floats) -> Floats:
    """1 where one counter of pipe activity is above what `hfma` warp instructions explain, else 0."""
    if found["what"] not in _HFMA_PIPES:
        return (values > 0).astype(np.float64)
    limit = _explained(book, found, hfma)
    # A share of active cycles can't be compared; it decides only where there was no packed instruction.
    unexplained = (values > 0) & (hfma == 0) if limit is None else values > limit
    return unexplained.astype(np.float64)


def _explained(book: Book, found: re.Match[str], hfma: Floats) -> Floats | None:
    """The most that `hfma` warp instructions can make of one counter; None where that can't be told."""
    if found["rest"] == "sum":
        return hfma * _SLACK * (_CYCLES_PER_HFMA if found["cycles"] and found["unit"] == "sm" else 1.0)
    if not found["cycles"] or found["rest"] not in (f"avg.{_ELAPSED}", f"sum.{_ELAPSED}"):
        return None
    cycles = book.get("sm__cycles_elapsed.sum", "cycle", "")
    if cycles is None:
        each = book.cycles("sm")
        sms = book.get("launch__sm_count", "SM", "")
        if each is None or sms is None:
            return None
        cycles = each.values * sms
    return 100 * hfma * _SLACK * _CYCLES_PER_HFMA / cycles + np.where(hfma > 0, _PCT_ROUNDING, 0.0)
