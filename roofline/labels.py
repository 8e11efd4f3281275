"""Placing a few labels beside points so that none covers another. Plain geometry in pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1"""
_GAP = 3.0
_DISTANCES = (4, 14, 28, 46, 70, 100, 140, 190, 250, 320)
_DIRECTIONS = 24
_CROWD = 70.0
"""Marks closer than this, edge to edge, are one crowd."""


class Mark(NamedTuple):
    """A drawn point: its centre and radius."""

    x: float
    y: float
    radius: float


class Placed(NamedTuple):
    """Where a label goes, and the point of its box that is nearest to its mark."""

    box: Box
    nearest: tuple[float, float]


class _Room(NamedTuple):
    """What a label must not leave, must not cover, and should not cover."""

    frame: Box
    texts: Sequence[Box]
    lines: Sequence[Box]
    marks: Sequence[Mark]
    leaders: Sequence[tuple[float, float, float, float]]


def place_labels(
    sizes: Sequence[tuple[float, float]],
    targets: Sequence[Mark],
    frame: Box,
    texts: Sequence[Box] = (),
    lines: Sequence[Box] = (),
    marks: Sequence[Mark] = (),
) -> list[Placed | None]:
    """Find a box for each label, in order of importance.

    A box lies within `frame` and covers no other label, nor anything in `texts` and `lines`; among those
    it is near its target, covers as few `marks` as possible, and its leader crosses no text. Labels of marks that
    crowd together stand in a column beside them, with leaders that do not cross. A label for which
    there is no room is None.

    Args:
        sizes: width and height of each label.
        targets: the mark that each label belongs to.
        marks: all drawn points.
    """
    placed: list[Placed | None] = [None] * len(targets)
    boxes: list[Box] = []
    leaders: list[tuple[float, float, float, float]] = []
    for crowd in _crowds(targets):
        room = _Room(frame, [*texts, *boxes], lines, marks, leaders)
        found = _column([sizes[i] for i in crowd], [targets[i] for i in crowd], room) if len(crowd) > 1 else None
        for at, i in enumerate(crowd):
            room = _Room(frame, [*texts, *boxes], lines, marks, leaders)
            place = found[at] if found else _single(*sizes[i], targets[i], room)
            if place is not None:
                placed[i] = place
                boxes.append(place.box)
                leaders.append((targets[i].x, targets[i].y, *place.nearest))
    return placed


def _crowds(targets: Sequence[Mark]) -> list[list[int]]:
    """Indices of marks, grouped where one is close to another of the group; most important first."""
    group = list(range(len(targets)))
    for i, a in enumerate(targets):
        for j, b in enumerate(targets[:i]):
            if math.hypot(a.x - b.x, a.y - b.y) < a.radius + b.radius + _CROWD and group[i] != group[j]:
                old, new = max(group[i], group[j]), min(group[i], group[j])
                group = [new if g == old else g for g in group]
    return [[i for i, g in enumerate(group) if g == first] for first in sorted(set(group))]


def _column(sizes: Sequence[tuple[float, float]], targets: Sequence[Mark], room: _Room) -> list[Placed] | None:
    """Labels of a crowd in one column to its right or left; None where no column has room."""
    pitch = max(h for _, h in sizes) + _GAP + 1
    height = pitch * len(sizes)
    middle = sum(t.y for t in targets) / len(targets)
    right, left = max(t.x + t.radius for t in targets), min(t.x - t.radius for t in targets)
    best: tuple[float, list[Placed]] | None = None
    for side, distance, shift in product((1, -1), _DISTANCES[1:], range(-12, 13)):
        x = right + distance if side > 0 else left - distance
        top = middle + height / 2 + shift * pitch
        rows = [top - (row + 0.5) * pitch for row in range(len(sizes))]
        column = [
            Placed((x if side > 0 else x - w, y - h / 2, x + w if side > 0 else x, y + h / 2), (x, y))
            for (w, h), y in zip(sizes, _untangled(targets, x, rows), strict=True)
        ]
        if all(_free(place.box, room) for place in column):
            cost = sum(
                math.hypot(place.nearest[0] - t.x, place.nearest[1] - t.y) + _cost(place, t, room)
                for place, t in zip(column, targets, strict=True)
            )
            if best is None or cost < best[0]:
                best = cost, column
    return best[1] if best else None


def _untangled(targets: Sequence[Mark], x: float, rows: Sequence[float]) -> list[float]:
    """The row of each target for which leaders to `x` are shortest in all: then no two of them cross."""

    def length(i: int, y: float) -> float:
        return math.hypot(x - targets[i].x, y - targets[i].y)

    order = sorted(range(len(targets)), key=lambda i: -targets[i].y)
    given = [0.0] * len(rows)
    for row, i in zip(rows, order, strict=True):
        given[i] = row
    swapped = True
    while swapped:
        swapped = False
        for i, j in combinations(range(len(given)), 2):
            gain = length(i, given[i]) + length(j, given[j]) - length(i, given[j]) - length(j, given[i])
            if gain > 1e-6:
                given[i], given[j] = given[j], given[i]
                swapped = True
    return given


def _single(width: float, height: float, target: Mark, room: _Room) -> Placed | None:
    best: tuple[float, Placed] | None = None
    for distance, box in _candidates(width, height, target):
        if _free(box, room):
            place = Placed(box, _nearest(box, target))
            cost = distance + _cost(place, target, room)
            if best is None or cost < best[0]:
                best = cost, place
    return best[1] if best else None


def _free(box: Box, room: _Room) -> bool:
    return _inside(box, room.frame) and not any(
        _overlap(box, other) for others in (room.texts, room.lines) for other in others
    )


def _cost(place: Placed, target: Mark, room: _Room) -> float:
    """Pixels of distance that covering marks and crossing other labels is worth avoiding."""
    leader = (target.x, target.y, *place.nearest)
    return (
        sum(150 + 8 * m.radius for m in room.marks if covers(place.box, m))
        + 150 * sum(_segment_hits(leader, other) for other in room.texts)
        + 150 * sum(_segment_hits(other, place.box) for other in room.leaders)
    )


def _candidates(width: float, height: float, target: Mark) -> Iterator[tuple[float, Box]]:
    for distance in _DISTANCES:
        for step in range(_DIRECTIONS):
            angle = 2 * math.pi * step / _DIRECTIONS
            reach = target.radius + distance
            x, y = target.x + reach * math.cos(angle), target.y + reach * math.sin(angle)
            # The box hangs on the side that faces the mark.
            cx, cy = x + width / 2 * math.cos(angle), y + height / 2 * math.sin(angle)
            yield float(distance), (cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2)


def _inside(box: Box, frame: Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] + _GAP and b[0] < a[2] + _GAP and a[1] < b[3] + _GAP and b[1] < a[3] + _GAP


def _nearest(box: Box, mark: Mark) -> tuple[float, float]:
    return min(max(mark.x, box[0]), box[2]), min(max(mark.y, box[1]), box[3])


def covers(box: Box, mark: Mark) -> bool:
    """Whether a box and a mark overlap."""
    x, y = _nearest(box, mark)
    return math.hypot(x - mark.x, y - mark.y) < mark.radius


def _segment_hits(segment: tuple[float, float, float, float], box: Box) -> bool:
    """Whether a segment passes through a box: clip it to the box and see if anything is left."""
    x0, y0, x1, y1 = segment
    low, high = 0.0, 1.0
    for start, delta, least, most in ((x0, x1 - x0, box[0], box[2]), (y0, y1 - y0, box[1], box[3])):
        if abs(delta) < 1e-9:
            if not least <= start <= most:
                return False
            continue
        a, b = sorted(((least - start) / delta, (most - start) / delta))
        low, high = max(low, a), min(high, b)
    return low < high
