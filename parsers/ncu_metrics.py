"""From a page's named metrics to the `counters` table: one row for each profiled kernel, real units.

Each figure keeps the name of the metric it comes from (`sources`) and, where it is null or limited, why
(`reasons`). Nothing is guessed: what a report lacks is null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.parsers.metric_book import IMPOSSIBLE, Book, Candidate, Pick, json_rows, plus
from kernelroof.parsers.ncu_flops import Flops, count_flops
from kernelroof.parsers.ncu_page import PRODUCTS, NcuPage
from kernelroof.parsers.ncu_peaks import bandwidth, compute_peaks
from kernelroof.parsers.printed_numbers import Floats
from kernelroof.parsers.schema import COUNTERS, conform

SECTOR_BYTES = 32
L1_WRITEBACK_BYTES = 128
L2_XBAR_BYTES = 32

_PCT = "avg.pct_of_peak_sustained_elapsed"
_DRAM_PCT = (
    f"dram__throughput.{_PCT}",
    f"gpu__dram_throughput.{_PCT}",
    f"dram__cycles_active.{_PCT}",
    "dram__bytes.sum.pct_of_peak_sustained_elapsed",
)
_TIME = ("gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration.max")
_CLOCK = tuple(f"{unit}__cycles_elapsed.avg.per_second" for unit in ("sm", "smsp", "l1tex", "gpc"))
_TRACKED = (
    *("time_ns", "dram_read_bytes", "dram_write_bytes", "dram_bytes", "l2_bytes", "l1_bytes", "dram_pct", "sm_pct"),
    *("tensor_pct", "occupancy_pct", "sm_clock_hz", "passes"),
)
"""Columns whose source or reason is kept in each row; the others have one obvious source."""
_PRODUCTS = ("time_ns", "dram_read_bytes", "dram_write_bytes", "dram_bytes", "l2_bytes", "l1_bytes")
"""Whole numbers that may be made from rates, so that they come out nearly whole."""
_COUNTS = ("registers", "grid_blocks", "block_threads", "sm_count", "passes")
"""Whole numbers as the tool gives them: a fraction is another quantity."""


def counters(page: NcuPage, passes: Mapping[int, int] | None = None) -> pd.DataFrame:
    """The `counters` table of a page.

    Args:
        page: what a reader returned.
        passes: replay passes by launch number, from the tool's own log lines, where the page lacks them.

    Raises:
        ReportError: the page has no kernel name for a row.
    """
    book = Book(page.values, page.units, page.labels)
    picks: dict[str, Pick] = {"time_ns": _named(book, _TIME, "ns")}
    book.time_ns = picks["time_ns"].values
    cc = pd.to_numeric(page.identity["cc"], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    picks |= _traffic(book, cc)
    picks |= {
        "dram_pct": _named(book, _DRAM_PCT, "%"),
        "sm_pct": _named(book, (f"sm__throughput.{_PCT}",), "%"),
        "tensor_pct": _named(book, (f"sm__pipe_tensor_cycles_active.{_PCT}",), "%"),
        "occupancy_pct": _named(book, ("sm__warps_active.avg.pct_of_peak_sustained_active",), "%"),
        "waves_per_sm": _named(book, ("launch__waves_per_multiprocessor",), "", "wave"),
        "registers": _named(book, ("launch__registers_per_thread",), "register/thread", ""),
        "grid_blocks": _named(book, ("launch__grid_size",), "", "block"),
        "block_threads": _named(book, ("launch__block_size",), "", "thread"),
        "sm_count": _named(book, ("launch__sm_count", "device__attribute_multiprocessor_count"), "SM", ""),
        "sm_clock_hz": _named(book, _CLOCK, "hz"),
        "dram_clock_hz": _named(book, ("dram__cycles_elapsed.avg.per_second",), "hz"),
        "passes": _passes(book, page, passes),
    }
    flops = count_flops(book)
    out = page.identity.copy()
    out["ordinal"] = pd.array(range(page.rows), dtype="Int64")
    out["gpu"] = page.texts.get("device__attribute_display_name", pd.Series(pd.NA, index=out.index, dtype="string"))
    out["kernel"] = out["kernel"].fillna("(unnamed)")
    for name, pick in picks.items():
        out[name] = np.rint(pick.values) if name in _PRODUCTS else pick.values
    out["flops"], out["flops_by_type"] = np.rint(flops.total), _shared(flops.by_type)
    out["flops_upper_bound"] = flops.upper_bound
    for name in PRODUCTS.values():
        if name in page.identity:
            out[name] = np.where(np.isnan(picks[name].values), page.identity[name], picks[name].values)
    for name in _COUNTS:
        out[name] = out[name].where((out[name] % 1 == 0) & (out[name] < IMPOSSIBLE))
    _add_peaks(out, book, cc)
    tracked = {name: picks[name] for name in _TRACKED}
    out["sources"], out["reasons"] = _sources(tracked, flops, page.rows), _reasons(tracked, flops, page.rows)
    return conform(out, COUNTERS, "counters")


def _shared(texts: npt.NDArray[np.object_]) -> Any:
    """A text column of long texts, most of them equal: Python's strings share what Arrow would copy row by row."""
    return pd.array(texts, dtype=pd.StringDtype("python"))


def reasons_of(row: Mapping[str, Any] | pd.Series[Any]) -> dict[str, str]:
    """The reasons of one row, by column."""
    text = row["reasons"]
    return dict(json.loads(text)) if isinstance(text, str) else {}


def _named(book: Book, names: tuple[str, ...], *units: str) -> Pick:
    return book.first([c for n in names for c in book.candidate(n, *units)], names)


def _traffic(book: Book, cc: Floats) -> dict[str, Pick]:
    """Bytes at the three levels of the memory hierarchy."""
    out: dict[str, Pick] = {}
    for way in ("read", "write"):
        names = [f"dram__bytes_{way}", f"dram__bytes_op_{way}"]
        ways = [c for name in names for c in book.total(name, "byte")]
        sectors = book.total(f"dram__sectors_{way}", "sector")
        ways += [Candidate(c.values * SECTOR_BYTES, f"{c.source} x {SECTOR_BYTES} B") for c in sectors]
        out[f"dram_{way}_bytes"] = book.first(ways, [f"{name}.sum" for name in names])
    read, write = out["dram_read_bytes"], out["dram_write_bytes"]
    both = Candidate(plus(read.values, write.values), "read + write")
    whole = book.total("dram__bytes", "byte")
    total = book.first([both, *whole], ["dram__bytes_read.sum", "dram__bytes_write.sum", "dram__bytes.sum"])
    # Where only one way was counted, what lacks is the other.
    known = [not np.isnan(way.values).all() for way in (read, write)]
    if np.isnan(total.values).all() and any(known) and not all(known):
        total = replace(total, reason=write.reason if known[0] else read.reason)
    out["dram_bytes"] = total
    xbar = "lts__lts2xbar_cycles_active"
    derived = book.total("derived__lts__lts2xbar_bytes", "byte")
    out["l2_bytes"] = book.first(
        [Candidate(c.values * L2_XBAR_BYTES, f"{c.source} x {L2_XBAR_BYTES} B") for c in book.total(xbar, "cycle")]
        + derived,
        [f"{xbar}.sum"],
    )
    out["l1_bytes"] = _l1(book, cc)
    return out


def _l1_counter(cc: float) -> str | None:
    """The counter that NVIDIA's own L1 roofline uses on a compute capability; None where not known."""
    if 7.0 <= cc < 7.5:
        return "l1tex__lsu_writeback_active"
    if 7.5 <= cc < 9.0:
        return "l1tex__lsu_writeback_active_mem_lg"
    return "l1tex__lsu_writeback_active_mem_lgds" if 9.0 <= cc < 10.0 else None


def _l1(book: Book, cc: Floats) -> Pick:
    candidates: list[Candidate] = []
    names: list[str] = []
    for value in np.unique(cc[~np.isnan(cc)]):
        name = _l1_counter(float(value))
        if name is None:
            continue
        names.append(f"{name}.sum")
        for c in book.total(name, "cycle"):
            values = np.where(cc == value, c.values * L1_WRITEBACK_BYTES, np.nan)
            candidates.append(Candidate(values, f"{c.source} x {L1_WRITEBACK_BYTES} B"))
    pick = book.first(candidates, names or ["l1tex__lsu_writeback_active"])
    unknown = "which L1 counter belongs to this compute capability is not known"
    return pick if names else Pick(pick.values, pick.sources, pick.which, unknown)


def _passes(book: Book, page: NcuPage, passes: Mapping[int, int] | None) -> Pick:
    ways = book.candidate("profiler__replayer_passes", "pass", "")
    if passes:
        numbers = page.identity["launch_id"].map(passes).to_numpy(dtype=np.float64, na_value=np.nan)
        ways.append(Candidate(numbers, "the tool's log lines"))
    return book.first(ways, ["profiler__replayer_passes"])


def _add_peaks(out: pd.DataFrame, book: Book, cc: Floats) -> None:
    """The report's own ceilings."""
    out["peak_dram_byte_s"] = bandwidth(book, "dram__bytes", 1.0, "dram__cycles_elapsed", "byte/cycle")
    out["peak_l2_byte_s"] = bandwidth(
        book, "lts__lts2xbar_cycles_active", L2_XBAR_BYTES, "lts__cycles_elapsed", "", "cycle", "1/cycle"
    )
    l1 = book.nothing()
    for value in np.unique(cc[~np.isnan(cc)]):
        name = _l1_counter(float(value))
        if name is not None:
            found = bandwidth(book, name, L1_WRITEBACK_BYTES, "l1tex__cycles_elapsed", "", "cycle", "1/cycle")
            l1 = np.where(cc == value, found, l1)
    out["peak_l1_byte_s"] = l1
    sms, clock = (out[n].to_numpy(dtype=np.float64, na_value=np.nan) for n in ("sm_count", "sm_clock_hz"))
    peaks = compute_peaks(book, sms, clock, np.floor(cc)).by_type
    rows = len(out)
    out["peak_flop_s"] = _shared(json_rows({k: p.flop_s for k, p in peaks.items()}, rows))
    per_cycle = json_rows({k: p.per_sm_cycle for k, p in peaks.items()}, rows, "%.6g")
    out["peak_flop_per_sm_cycle"] = _shared(per_cycle)


def _sources(picks: Mapping[str, Pick], flops: Flops, rows: int) -> Any:
    """Where each figure of a row comes from, as JSON text; rows that agree share one text."""
    names = list(picks)
    key = np.zeros(rows, dtype=np.int64)
    for name in names:
        pick = picks[name]
        key = key * (len(pick.sources) + 1) + pick.which.astype(np.int64) + 1
    known = ~np.isnan(flops.total)
    key = key * 2 + known
    _, first, back = np.unique(key, return_index=True, return_inverse=True)
    texts = []
    for row in first:
        found = {n: picks[n].sources[int(picks[n].which[row])] for n in names if picks[n].which[row] >= 0}
        if known[row] and flops.sources:
            found["flops"] = ", ".join(flops.sources)
        texts.append(json.dumps(found) if found else None)
    return _shared(np.array([*texts, None], dtype=object)[back])


def _reasons(picks: Mapping[str, Pick], flops: Flops, rows: int) -> Any:
    """Why each null of a row is null, and what limits its FLOPs, as JSON text."""
    null = np.zeros(rows, dtype=np.int64)
    names = list(picks)
    for bit, name in enumerate(names):
        null |= np.isnan(picks[name].values).astype(np.int64) << bit
    codes, whys = pd.factorize(flops.why_null, use_na_sentinel=True)
    _, first, back = np.unique(null * (len(whys) + 2) + codes + 1, return_index=True, return_inverse=True)
    texts = []
    for row in first:
        found = {n: picks[n].reason for n in names if np.isnan(picks[n].values[row])}
        why = flops.why_null[row] or flops.caveat
        texts.append(json.dumps(found | ({"flops": why} if why else {})))
    return _shared(np.array([*texts, None], dtype=object)[back])
