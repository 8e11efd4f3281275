"""Pairs the launches of a timeline with those of a counting run, module call by module call.

Two runs of one program launch the same kernels in the same order, or they can't be joined: within each
(phase, step, module) the sequence of kernel, grid and block must be the same in both. What is not is
listed and left unjoined.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from kernelroof.parsers.kernel_names import normalise, shorten
from kernelroof.parsers.kineto_nesting import label_ranges
from kernelroof.parsers.schema import UNATTRIBUTED
from kernelroof.profile.window import Window

Ints = npt.NDArray[np.int64]

_Key = tuple[str, str | None, str | None]


class Pairs(NamedTuple):
    """launch and counter: positions of the rows that belong together. unjoined: a sentence for each call
    of a module whose sequences differ."""

    launch: Ints
    counter: Ints
    unjoined: list[str]


def pair(launches: pd.DataFrame, counters: pd.DataFrame) -> Pairs:
    """Pair rows of the launches that were to be counted with rows of `counters` (an export, in its order).

    Counters without ranges are compared as one sequence with all the launches. What was counted besides the
    launches asked for is left out in silence only where its call was not asked for.
    """
    wanted = _keys(launches)
    found = _keys(counters)
    if not counters["range"].notna().any():
        return _whole(launches, wanted, found)
    of_call: dict[Window, list[int]] = defaultdict(list)
    phases = launches["phase"].tolist()
    steps = launches["step"].fillna(-1).astype("int64").tolist()
    for row, call in enumerate(zip(phases, steps, launches["module"].tolist(), strict=True)):
        of_call[Window(*call)].append(row)
    counted: dict[Window, list[int]] = defaultdict(list)
    places = {path: place_of(path) for path in counters["range"].dropna().unique()}
    nowhere = Window(UNATTRIBUTED, -1, UNATTRIBUTED)
    for row, path in enumerate(counters["range"].tolist()):
        counted[places.get(path, nowhere)].append(row)
    left: list[int] = []
    right: list[int] = []
    unjoined = []
    for call, rows in of_call.items():
        others = counted.get(call, [])
        difference = _difference([wanted[r] for r in rows], [found[r] for r in others])
        if difference:
            unjoined.append(f"{call.phase} step {call.step} {call.module}: {difference}")
            continue
        left += rows
        right += others
    return Pairs(np.array(left, np.int64), np.array(right, np.int64), unjoined)


def place_of(path: str) -> Window:
    """Phase, step (-1: none) and module of a path of ranges joined by slashes, outermost first."""
    names = path.split("/")
    found = label_ranges(names, np.arange(-1, len(names) - 1))
    return Window(found.phase[-1], int(found.step[-1]), found.module[-1])


def _keys(table: pd.DataFrame) -> list[_Key]:
    names = [normalise(str(name)) for name in table["kernel"]]
    return list(zip(names, _texts(table["grid"]), _texts(table["block"]), strict=True))


def _texts(column: pd.Series[str]) -> list[str | None]:
    return [None if pd.isna(value) else str(value).replace(" ", "") for value in column.tolist()]


def _whole(launches: pd.DataFrame, wanted: list[_Key], found: list[_Key]) -> Pairs:
    """All as one sequence, for a counting run in which the tool saw no ranges."""
    difference = _difference(wanted, found)
    if difference:
        return Pairs(np.empty(0, np.int64), np.empty(0, np.int64), [f"the whole run, without ranges: {difference}"])
    rows = np.arange(len(launches), dtype=np.int64)
    return Pairs(rows, rows, [])


def _difference(wanted: list[_Key], found: list[_Key]) -> str:
    """Where two sequences part, in words; empty where they agree. A null grid or block agrees with any."""
    if not found:
        return "nothing was counted"
    for place, (a, b) in enumerate(zip(wanted, found, strict=False)):
        if any(x != y for x, y in zip(a, b, strict=True) if x is not None and y is not None):
            return f"launch {place} is {_words(a)} on the timeline and {_words(b)} when counted"
    if len(wanted) != len(found):
        return f"{len(wanted)} launches on the timeline and {len(found)} when counted"
    return ""


def _words(key: _Key) -> str:
    return f"{shorten(key[0])} grid {key[1]} block {key[2]}"
