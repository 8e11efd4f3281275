"""Lengths of sets of intervals on one clock: sums, unions, and how much of them lies before a time.

Intervals are pairs of integer arrays, start and end in ns, end not below start. Everything is exact:
integers throughout, no loop over intervals.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """Intervals that neither touch nor overlap, in order."""

    start: Ints
    end: Ints


def merge(start: Ints, end: Ints) -> Intervals:
    """The union of intervals; those that touch become one, empty ones vanish."""
    some = end > start
    order = np.argsort(start[some], kind="stable")
    start, end = start[some][order], np.maximum.accumulate(end[some][order])
    begins = np.ones(len(start), bool)
    begins[1:] = start[1:] > end[:-1]
    return Intervals(start[begins], end[np.append(begins[1:], True)] if len(start) else end)


def before(start: Ints, end: Ints, time: Ints) -> Ints:
    """Total length of the intervals that lies before each time; overlaps count as often as they occur."""
    return _lag(start, time) - _lag(end, time)


def union_lengths(group: Ints, start: Ints, end: Ints, groups: int) -> Ints:
    """Length of the union of the intervals of each group 0 ... groups - 1."""
    n = len(group)
    times = np.concatenate([start, end])
    sign = np.concatenate([np.ones(n, np.int64), np.full(n, -1)])
    both = np.concatenate([group, group])
    order = np.lexsort((times, both))
    # Between one edge and the next of a group time counts while at least one interval is open. A
    # group's last edge leaves none open, so nothing runs over into the next group.
    covered = np.cumsum(sign[order])[:-1] != 0
    steps = np.where(covered, np.diff(times[order]), 0)
    lengths = np.zeros(groups, np.int64)
    np.add.at(lengths, both[order][:-1], steps)
    return lengths


def _lag(points: Ints, time: Ints) -> Ints:
    """Sum of (time - point) over the points before each time."""
    ordered = np.sort(points)
    passed = np.searchsorted(ordered, time)
    # Large recordings may wrap around 64 bits here; the difference of two lags is right all the same.
    return np.asarray(passed * time - np.concatenate([[0], np.cumsum(ordered)])[passed], np.int64)
