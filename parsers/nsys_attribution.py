"""From GPU work to the call that launched it, and from the call to the ranges around it.

Arrays in, arrays out, no loop over events. The rules:
- work belongs to the call with the same correlation id in the same process;
- a call is inside a range when it starts in [start, end) of the range, and the range was pushed on
  its thread, or started anywhere in its process;
- when the GPU ran the work never matters: kernels run later than their launch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from kernelroof.parsers.nsys_schema import NULL, Ints, Mask

NO_END = int(np.iinfo(np.int64).max)
"""End of a range that was never closed: it covers everything after its start."""


class RangeTable(NamedTuple):
    """Ranges, one entry each.

    start, end: ns; end is `NO_END` for a range never closed. thread: global thread id of the push or
    start. process_wide: true for start/end ranges, which belong to every thread of the process.
    """

    start: Ints
    end: Ints
    thread: Ints
    process_wide: Mask


class Cover(NamedTuple):
    """Which ranges cover which points.

    Points with the same ranges share a group. `group[p]` is the group of point p; the ranges of group
    g, outermost first, are `ranges[offsets[g]:offsets[g + 1]]` (indices into the RangeTable).
    """

    group: Ints
    offsets: Ints
    ranges: Ints


def process_of(global_id: Ints) -> Ints:
    """The process part of a globalTid or globalPid."""
    return np.where(global_id == NULL, NULL, global_id & ~np.int64(0xFFFFFF))


def pid_of(global_id: Ints) -> Ints:
    """Operating-system process ids, NULL where the id is null."""
    return np.where(global_id == NULL, NULL, (global_id >> 24) & 0xFFFFFF)


def tid_of(global_id: Ints) -> Ints:
    """Operating-system thread ids, NULL where the id is null."""
    return np.where(global_id == NULL, NULL, global_id & 0xFFFFFF)


def pair_codes(first: tuple[Ints, Ints], second: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Number the pairs of two lists alike, so that equal pairs have equal numbers."""
    n = len(first[0])
    major, _ = pd.factorize(np.concatenate([first[0], second[0]]))
    minor, distinct = pd.factorize(np.concatenate([first[1], second[1]]))
    codes = major.astype(np.int64) * max(len(distinct), 1) + minor
    return codes[:n], codes[n:]


def launching_calls(
    work_process: Ints, work_correlation: Ints, call_process: Ints, call_correlation: Ints, call_start: Ints
) -> Ints:
    """For each piece of GPU work the index of the call that launched it, -1 where none was recorded.

    Where two calls share an id (a runtime call and the driver call inside it), the first to start is
    taken.
    """
    if not len(call_start):
        return np.full(len(work_process), -1, np.int64)
    work, calls = pair_codes((work_process, work_correlation), (call_process, call_correlation))
    order = np.lexsort((call_start, calls))
    ordered = calls[order]
    at = np.searchsorted(ordered, work)
    at[at == len(ordered)] = 0
    known = (ordered[at] == work) & (work_correlation != NULL) & (work_process != NULL)
    return np.where(known, order[at], -1)


def cover(point_thread: Ints, point_ns: Ints, ranges: RangeTable) -> Cover:
    """Find the ranges around each point (a call's start on its thread), outermost first.

    Of two ranges the outer one is that which started first; of two that started together, that which
    ends last; of two alike, the first in the table.
    """
    thread_code, threads = pd.factorize(point_thread)
    times = np.unique(point_ns)
    width = len(times) + 1
    key = thread_code.astype(np.int64) * width + np.searchsorted(times, point_ns)
    point_order = np.argsort(key, kind="stable")
    key = key[point_order]

    row, thread = _ranges_by_thread(ranges, threads)
    low = np.searchsorted(key, thread * width + np.searchsorted(times, ranges.start[row]))
    high = np.searchsorted(key, thread * width + np.searchsorted(times, ranges.end[row]))
    used = low < high
    row, low, high = row[used], low[used], high[used]

    # Neighbouring points with no edge of a range between them have the same ranges.
    edge = np.zeros(len(key) + 1, bool)
    edge[low] = edge[high] = edge[0] = True
    group_of_position = np.cumsum(edge) - 1
    groups = int(group_of_position[len(key) - 1]) + 1 if len(key) else 0
    group = np.empty(len(key), np.int64)
    group[point_order] = group_of_position[: len(key)]

    outer_first = np.lexsort((row, -ranges.end[row], ranges.start[row]))
    row, first = row[outer_first], group_of_position[low[outer_first]]
    spans = group_of_position[high[outer_first] - 1] + 1 - first
    # One entry for each (range, group it covers), then sorted by group.
    within = np.arange(int(spans.sum())) - np.repeat(np.cumsum(spans) - spans, spans)
    in_group = np.repeat(first, spans) + within
    by_group = np.argsort(in_group, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(in_group, minlength=groups))]).astype(np.int64)
    return Cover(group, offsets, np.repeat(row, spans)[by_group])


def _ranges_by_thread(ranges: RangeTable, threads: Ints) -> tuple[Ints, Ints]:
    """Pairs (range, thread number) of every thread that a range belongs to."""
    index = pd.Index(threads)
    number = index.get_indexer(pd.Index(ranges.thread)).astype(np.int64)
    pushed = np.flatnonzero(~ranges.process_wide & (number >= 0))
    wide = np.flatnonzero(ranges.process_wide)
    if not len(wide):
        return pushed, number[pushed]
    members = pd.DataFrame({"process": process_of(threads), "thread": np.arange(len(threads))})
    started = pd.DataFrame({"process": process_of(ranges.thread[wide]), "row": wide})
    pairs = started.merge(members, on="process")
    return (
        np.concatenate([pushed, pairs["row"].to_numpy(np.int64)]),
        np.concatenate([number[pushed], pairs["thread"].to_numpy(np.int64)]),
    )


def cover_of_ranges(ranges: RangeTable) -> Cover:
    """For each range the ranges around it, itself last; the group of range r is r."""
    n = len(ranges.start)
    rows = np.arange(n)
    # A range without extent still covers its own start.
    found = cover(ranges.thread, ranges.start, ranges._replace(end=np.maximum(ranges.end, ranges.start + 1)))
    size = np.diff(found.offsets)[found.group]
    owner = np.repeat(rows, size)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(size) - size, size)
    around = found.ranges[np.repeat(found.offsets[found.group], size) + place]
    own_place = place[around == owner]
    outer = place <= np.repeat(own_place, size)
    offsets = np.concatenate([[0], np.cumsum(own_place + 1)]).astype(np.int64)
    return Cover(rows, offsets, around[outer])
