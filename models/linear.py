"""Records that change along a straight line from step to step, integers only: fitted, checked, evaluated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_INTEGER = re.compile(r"(\d+)")

Record = tuple[Any, ...]


class Line(NamedTuple):
    """One record at step 0 of the fit, and what each step adds: a field's index, its start, its slope."""

    start: Record
    slopes: tuple[tuple[int, int], ...]
    texts: tuple[tuple[int, tuple[str, ...], tuple[int, ...]], ...]
    """Text fields with integers that grow ("[1,8,1025,64]"): index, pieces at step 0, slope of each piece."""


def fit(
    first: Sequence[Record], last: Sequence[Record], span: int, checks: Sequence[tuple[int, Sequence[Record]]]
) -> list[Line] | None:
    """Lines through two sequences of records, `span` steps apart.

    None if the records do not correspond, if a slope is no integer, or if a sequence in `checks`, given
    with its distance from the first, is not exactly on the lines.
    """
    if len(first) != len(last) or span < 1:
        return None
    lines = [_line(a, b, span) for a, b in zip(first, last, strict=True)]
    found = [line for line in lines if line is not None]
    if len(found) != len(lines):
        return None
    for distance, records in checks:
        if at(found, distance) != [tuple(r) for r in records]:
            return None
    return found


def at(lines: Sequence[Line], distance: int) -> list[Record]:
    """The records that many steps after the first."""
    return [_evaluate(line, distance) for line in lines]


def _line(a: Record, b: Record, span: int) -> Line | None:
    slopes = []
    texts = []
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x == y:
            continue
        if isinstance(x, int) and isinstance(y, int):
            slope, rest = divmod(y - x, span)
            if rest:
                return None
            slopes.append((i, slope))
        elif isinstance(x, str) and isinstance(y, str):
            text = _text(x, y, span)
            if text is None:
                return None
            texts.append((i, *text))
        else:
            return None
    return Line(tuple(a), tuple(slopes), tuple(texts))


def _text(x: str, y: str, span: int) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
    pieces, others = _INTEGER.split(x), _INTEGER.split(y)
    if len(pieces) != len(others):
        return None
    slopes = []
    for piece, other in zip(pieces, others, strict=True):
        if piece == other:
            slopes.append(0)
            continue
        if not (piece.isdigit() and other.isdigit()):
            return None
        slope, rest = divmod(int(other) - int(piece), span)
        if rest:
            return None
        slopes.append(slope)
    return tuple(pieces), tuple(slopes)


def _evaluate(line: Line, distance: int) -> Record:
    if len(line.slopes) == 1 and not line.texts:  # most ops: nothing but the step's own number
        (i, slope), start = line.slopes[0], line.start
        return (*start[:i], start[i] + slope * distance, *start[i + 1 :])
    record = list(line.start)
    for i, slope in line.slopes:
        record[i] += slope * distance
    for i, pieces, slopes in line.texts:
        record[i] = "".join(
            str(int(piece) + slope * distance) if slope else piece for piece, slope in zip(pieces, slopes, strict=True)
        )
    return tuple(record)
