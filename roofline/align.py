"""Align a traced sequence of ops with a recorded forest of ops by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Weights of the score, each above all that the ones below it can add up to: matches of ops with
# work, matches, and closeness to the top of the forest.
_WORK = 1 << 42
_MATCH = 1 << 22


class Forest(NamedTuple):
    """Recorded ops in pre-order: names, the number of nodes in each one's subtree (with itself), depths."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    depths: tuple[int, ...]


def align(forest: Forest, names: Sequence[str], has_work: Sequence[bool]) -> list[int]:
    """For each traced op, in order, the recorded node that ran it, or -1.

    A match takes the node's whole subtree, so nothing inside it is matched again; order is kept and
    names are equal. Among all such alignments the one with the most ops that have work wins, then the
    one with the most ops, then the one nearest the top of the forest, which keeps the helpers inside
    an op from being taken for an op of the model; then the earliest.

    It is the longest common subsequence with whole subtrees to step over: O(nodes x ops) in numpy,
    and much less when every op finds its node in order.
    """
    direct = _direct(forest, names)
    return direct if direct is not None else _best(forest, names, has_work)


def _direct(forest: Forest, names: Sequence[str]) -> list[int] | None:
    """The alignment where there is no choice: as many nodes of each name on view as traced ops.

    Counts only nodes that no node of a traced name encloses; if those are the traced sequence itself,
    it is optimal: every op is matched, and each as near the top as can be.
    """
    wanted = set(names)
    nodes = []
    at = 0
    while at < len(forest.names):
        if forest.names[at] in wanted:
            nodes.append(at)
            at += forest.sizes[at]
        else:
            at += 1
    return nodes if [forest.names[n] for n in nodes] == list(names) else None


def _best(forest: Forest, names: Sequence[str], has_work: Sequence[bool]) -> list[int]:
    """Dynamic programming from the back: score[i][j] is the best for nodes i.. and traced ops j.. ."""
    width = len(names)
    columns: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {
        name: np.array([j for j, n in enumerate(names) if n == name], dtype=np.int64) for name in set(names)
    }
    work = np.array(has_work, dtype=np.int64) * _WORK
    total = len(forest.names)
    score = [np.zeros(width + 1, dtype=np.int64)] * (total + 1)
    for i in range(total - 1, -1, -1):
        score[i] = score[i + 1]
        at = columns.get(forest.names[i])
        if at is None:
            continue
        taken = score[i + forest.sizes[i]][at + 1] + work[at] + _MATCH - forest.depths[i]
        row = score[i + 1].copy()
        row[at] = np.maximum(row[at], taken)
        # A traced op may be left out: what is best from a later op on is open to an earlier one.
        score[i] = np.maximum.accumulate(row[::-1])[::-1]
    found = [-1] * width
    i = j = 0
    while i < total and j < width:
        here = score[i][j]
        if here == 0:
            break
        if forest.names[i] == names[j]:
            after = i + forest.sizes[i]
            if here == score[after][j + 1] + work[j] + _MATCH - forest.depths[i]:
                found[j] = i
                i, j = after, j + 1
                continue
        if here == score[i + 1][j]:
            i += 1
        else:
            j += 1
    return found
