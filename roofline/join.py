"""Launches of a timeline and counters of ncu, joined into one row for each launch.

A kernel is the same in both by its normalised name, grid and block; which launch a counted one is, is told
by the ranges around it and by order. ncu may have counted only some of the launches: those stand for the
others of their class where they agree among themselves. What can't be joined is kept and listed.
Durations of the two stay in columns of their own: they are of different clocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.models.kinds import kind_of
from kernelroof.parsers.kernel_names import function_name, normalise
from kernelroof.parsers.kineto_nesting import label_ranges
from kernelroof.parsers.schema import COUNTERS, UNATTRIBUTED
from kernelroof.roofline.place import numbers, ratio

AGREE_PCT = 5.0
"""Counted launches of one class that differ by more than this do not stand for the others."""
RATIO_FLAG = 1.5
"""Durations of one launch under ncu and on the timeline that differ by more than this factor are flagged."""

TAKEN = (
    *("flops", "dram_read_bytes", "dram_write_bytes", "dram_bytes", "l2_bytes", "l1_bytes"),
    *("flops_by_type", "flops_upper_bound", "dram_pct", "sm_pct", "sm_pct_at_least", "tensor_pct"),
    *("occupancy_pct", "waves_per_sm", "registers", "sm_clock_hz", "passes", "sources", "reasons"),
    *("peak_flop_s", "peak_dram_byte_s", "peak_l2_byte_s", "peak_l1_byte_s", "cc"),
)
"""Columns of the counters that a launch takes over."""


class Joined(NamedTuple):
    """`rows`: one launch each, with `ncu_time_ns`, `timeline_ns`, `joined`, `caveat` and the columns of `TAKEN`.
    `unjoined`: side (launch or counter), kernel, grid, block, ranges, launches, time_ns, reason."""

    rows: pd.DataFrame
    unjoined: pd.DataFrame


def counted_rows(counters: pd.DataFrame) -> pd.DataFrame:
    """The rows of a run without a timeline: every counted kernel is a launch of its own.

    Phase, step and module come from the ranges that ncu recorded.
    """
    base = pd.DataFrame(
        {
            **_labels(counters["range"]),
            "kernel": counters["kernel"],
            "op": pd.Series(pd.NA, counters.index, dtype="string"),
            "ranges": counters["range"],
            "device": counters["device"],
            "grid": counters["grid"],
            "block": counters["block"],
            "start_ns": pd.Series(pd.NA, counters.index, dtype="Int64"),
            "count": pd.Series(1, counters.index, dtype="Int64"),
            "time_source": "ncu",
            "ncu_time_ns": counters["time_ns"],
            "timeline_ns": pd.Series(pd.NA, counters.index, dtype="Int64"),
            "joined": "itself",
            "caveat": pd.Series(pd.NA, counters.index, dtype="string"),
        }
    )
    rows = pd.concat([base, counters[list(TAKEN)]], axis=1)
    return _finished(rows)


def join(launches: pd.DataFrame, counters: pd.DataFrame | None) -> Joined:
    """Join the `launches` of a timeline with `counters` (None: nothing was counted).

    Args:
        launches: columns of LAUNCHES, in order of time; optional `count` (launches that a row stands for).
        counters: columns of COUNTERS and `sm_pct_at_least`.
    """
    rows = launches.reset_index(drop=True)
    if "count" not in rows:
        rows = rows.assign(count=pd.Series(1, rows.index, dtype="Int64"))
    rows["timeline_ns"] = rows["time_ns"]
    if counters is None or counters.empty:
        bare = pd.concat([rows.drop(columns="time_ns"), _nothing(rows.index)], axis=1)
        return Joined(_finished(bare), _unjoined([]))
    counters = counters.reset_index(drop=True)
    match, how, why, used = _match(rows, counters)
    has = match >= 0
    taken = counters[[*TAKEN, "time_ns"]].take(np.where(has, match, 0)).reset_index(drop=True)
    taken = taken.rename(columns={"time_ns": "ncu_time_ns"}).where(pd.Series(has, rows.index))
    out = pd.concat([rows.drop(columns="time_ns"), taken], axis=1)
    out["joined"] = pd.Series(how, rows.index, dtype="string")
    out["caveat"] = duration_doubts(out["ncu_time_ns"], out["timeline_ns"])
    lost = _lost(rows, counters, match, why, used)
    return Joined(_finished(out), lost)


def duration_doubts(ncu_ns: pd.Series[float], timeline_ns: pd.Series[float]) -> pd.Series[str]:
    """Of launches that last much longer in one clock than in the other, how much; null for the rest."""
    factor = ratio(numbers(ncu_ns), numbers(timeline_ns))
    flagged = (factor > RATIO_FLAG) | (factor < 1 / RATIO_FLAG)
    words = [
        f"ncu's duration is {f:.2f} times the timeline's" if bad else None
        for f, bad in zip(factor, flagged, strict=True)
    ]
    column: pd.Series[str] = pd.Series(words, timeline_ns.index, dtype="string")
    return column


def _nothing(index: pd.Index) -> pd.DataFrame:
    """What launches take over from counters where there are none."""
    dtypes = {c.name: "string" if c.dtype == "str" else c.dtype for c in COUNTERS if c.name in TAKEN}
    dtypes |= {"sm_pct_at_least": "float64", "ncu_time_ns": "Int64", "joined": "string", "caveat": "string"}
    nulls = {name: pd.Series([None] * len(index), index, dtype=dtype) for name, dtype in dtypes.items()}
    out: pd.DataFrame = pd.DataFrame(nulls)
    return out


def _match(launches: pd.DataFrame, counters: pd.DataFrame) -> tuple[Any, list[str | None], list[str], Any]:
    """For each launch the row of its counters (-1: none), how it was found, why not; and which counters met any."""
    match = np.full(len(launches), -1, dtype=np.int64)
    how: list[str | None] = [None] * len(launches)
    why = ["this kernel was not counted"] * len(launches)
    used = np.zeros(len(counters), dtype=bool)
    for by_function in (False, True):
        mine, theirs = _keys(launches, counters, by_function)
        open_launches = np.flatnonzero(match < 0)
        open_counters = np.flatnonzero(~used)
        groups = pd.Series(open_counters).groupby(theirs[open_counters]).apply(list).to_dict()
        for key, rows in pd.Series(open_launches).groupby(mine[open_launches]):
            found = groups.get(key)
            if found is None:
                continue
            for some, counted in _scopes(launches, counters, list(rows), list(found)):
                _pair(launches, counters, some, counted, match, how, why)
            used[found] = True
    return match, how, why, used


def _pair(
    launches: pd.DataFrame,
    counters: pd.DataFrame,
    rows: list[int],
    found: list[int],
    match: Any,
    how: list[str | None],
    why: list[str],
) -> None:
    """Pair the launches of one class with its counted ones."""
    alone = bool((launches["count"].iloc[rows] == 1).all())
    if len(rows) == len(found) and alone:
        for row, counter in zip(rows, found, strict=True):
            match[row], how[row] = counter, "ordinal"
        return
    spread = _spread(counters.iloc[found])
    if spread > AGREE_PCT:
        for row in rows:
            why[row] = (
                f"{len(found)} of its {len(rows)} launches were counted, and they differ by {spread:.0f} %: "
                "which of them is this one is not known"
            )
        return
    weight = numbers(counters["dram_bytes"].iloc[found])
    middle = found[int(np.argsort(np.nan_to_num(weight), kind="stable")[(len(found) - 1) // 2])]
    for row in rows:
        match[row], how[row] = middle, "class"


def _spread(counted: pd.DataFrame) -> float:
    """By how much the work of counted launches differs, in percent of the largest."""
    worst = 0.0
    for name in ("flops", "dram_bytes"):
        values = numbers(counted[name])
        values = values[~np.isnan(values)]
        if len(values) > 1 and values.max() > 0:
            worst = max(worst, 100 * float(values.max() - values.min()) / float(values.max()))
    return worst


def _keys(launches: pd.DataFrame, counters: pd.DataFrame, by_function: bool) -> tuple[Any, Any]:
    """The class of each row on both sides: name, and grid and block as far as the counters tell them."""
    name = function_name if by_function else normalise
    mine = launches["kernel"].map(name).astype(object)
    theirs = counters["kernel"].map(name).astype(object)
    unknown_here = launches["grid"].isna()
    if counters["grid"].notna().all():
        mine = (
            mine
            + "|"
            + launches["grid"].astype(object).fillna("?")
            + "|"
            + launches["block"].astype(object).fillna("?")
        )
        theirs = theirs + "|" + counters["grid"].astype(object) + "|" + counters["block"].astype(object).fillna("?")
    elif counters["grid_blocks"].notna().all():
        mine = mine + "|" + _product(launches["grid"]) + "|" + _product(launches["block"])
        theirs = theirs + "|" + counters["grid_blocks"].astype(str) + "|" + counters["block_threads"].astype(str)
    mine = mine.where(~unknown_here, "(no grid)")
    return mine.to_numpy(object), theirs.to_numpy(object)


def _product(sizes: pd.Series[str]) -> pd.Series[str]:
    products = {s: str(int(np.prod([int(x) for x in str(s).split(",")]))) for s in sizes.dropna().unique()}
    return sizes.map(products).astype(object).fillna("?")


def _scopes(
    launches: pd.DataFrame, counters: pd.DataFrame, rows: list[int], found: list[int]
) -> list[tuple[list[int], list[int]]]:
    """Split a class by the ranges around its launches, where both sides know them and they meet.

    Launches in ranges where none was counted get all counted ones of the class.
    """
    mine = _scope(launches.iloc[rows], "ranges")
    theirs = _scope(counters.iloc[found], "range")
    if not (set(mine) & set(theirs)) - {""}:
        return [(rows, found)]
    out, rest = [], []
    for scope in dict.fromkeys(mine):
        some = [r for r, s in zip(rows, mine, strict=True) if s == scope]
        counted = [c for c, s in zip(found, theirs, strict=True) if s == scope]
        if counted:
            out.append((some, counted))
        else:
            rest += some
    return [*out, (rest, found)] if rest else out


def _scope(rows: pd.DataFrame, column: str) -> list[str]:
    """Phase, step and module where a row has a phase, else its path of ranges."""
    labels = rows if "phase" in rows else pd.DataFrame(_labels(rows[column]))
    paths = rows[column].astype("string").fillna("").tolist()
    parts = zip(labels["phase"], labels["step"], labels["module"], paths, strict=True)
    return [p if phase == UNATTRIBUTED else f"{phase}|{step}|{module}" for phase, step, module, p in parts]


def _labels(ranges: pd.Series[str]) -> dict[str, pd.Series[Any]]:
    """Phase, step and module of paths of ranges."""
    known: dict[str, tuple[str, int | None, str]] = {}
    for path in ranges.dropna().unique():
        names = str(path).split("/")
        found = label_ranges(names, np.arange(-1, len(names) - 1))
        step = int(found.step[-1])
        known[str(path)] = (found.phase[-1], step if step >= 0 else None, found.module[-1])
    labels = [known.get(str(p), (UNATTRIBUTED, None, UNATTRIBUTED)) for p in ranges]
    return {
        "phase": pd.Series([x[0] for x in labels], ranges.index, dtype="string"),
        "step": pd.Series([x[1] for x in labels], ranges.index, dtype="Int64"),
        "module": pd.Series([x[2] for x in labels], ranges.index, dtype="string"),
    }


def _finished(rows: pd.DataFrame) -> pd.DataFrame:
    """The columns that every row has: kind, ratio, ordinal, sources."""
    kinds = {
        (m, o): kind_of(str(m), "" if pd.isna(o) else str(o)) for m, o in zip(rows["module"], rows["op"], strict=True)
    }
    numbered: pd.DataFrame = rows.assign(
        kind=[kinds[pair] for pair in zip(rows["module"], rows["op"], strict=True)],
        duration_ratio=ratio(numbers(rows["ncu_time_ns"]), numbers(rows["timeline_ns"])),
        ordinal=rows.groupby(["phase", "step"], dropna=False, sort=False).cumcount(),
    )
    for name in ("flops", "dram_read_bytes", "dram_write_bytes", "dram_bytes", "l2_bytes", "l1_bytes", "ncu_time_ns"):
        numbered[name] = numbered[name].astype("Int64")
    return numbered


def _lost(launches: pd.DataFrame, counters: pd.DataFrame, match: Any, why: list[str], used: Any) -> pd.DataFrame:
    """What has no partner, on either side, summed over equal launches."""
    parts = []
    open_ = match < 0
    no_grid = launches["grid"].isna().to_numpy(bool)
    words = pd.Series(["the timeline has no grid for it" if g else w for g, w in zip(no_grid, why, strict=True)])
    if open_.any():
        left = launches.assign(reason=words.to_numpy(), side="launch")[open_]
        parts.append(left.rename(columns={"count": "launches"}))
    normal = set(launches["kernel"].map(function_name))
    if not used.all():
        left = counters[~used].rename(columns={"range": "ranges"})
        known = [function_name(k) in normal for k in left["kernel"]]
        reason = ["no launch of this grid and block is its own" if k else "not on the timeline" for k in known]
        parts.append(left.assign(reason=reason, side="counter", launches=1))
    return _unjoined(parts)


def _unjoined(parts: list[pd.DataFrame]) -> pd.DataFrame:
    columns = ["side", "kernel", "grid", "block", "ranges", "launches", "time_ns", "reason"]
    if not parts:
        nothing: pd.DataFrame = pd.DataFrame(columns=columns)
        return nothing
    rows = pd.concat([p[columns].astype(object) for p in parts], ignore_index=True)
    keys = ["side", "kernel", "grid", "block", "ranges", "reason"]
    grouped = rows.groupby(keys, sort=False, dropna=False)[["launches", "time_ns"]].sum().reset_index()
    out: pd.DataFrame = grouped[columns]
    return out
