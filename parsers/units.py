"""Units as Nsight Compute prints them, brought to base units.

Base units: byte, ns (durations), hz (clocks), and per second for rates; prefixes are powers of 1000.
Old spellings (`usecond`, `cycle/nsecond`) and new ones (`us`, `Ghz`) give the same base unit.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_PREFIX = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SECONDS = {
    "s": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "msecond": 1e-3,
    "us": 1e-6,
    "usecond": 1e-6,
    "ns": 1e-9,
    "nsecond": 1e-9,
}
_NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_PREFIXED = re.compile(r"([KkMGTP]?)(byte|bytes|hz|Hz)")
_PLURAL = {"sectors": "sector", "bytes": "byte", "Hz": "hz"}


class BaseUnit(NamedTuple):
    """`value * factor` is in unit `name`."""

    factor: float
    name: str


@lru_cache(maxsize=4096)
def base_unit(unit: str) -> BaseUnit:
    """The base unit of a printed one, and the factor to it.

    What is not known (`warp`, `register/thread`, `furlong`) keeps its name with factor 1; whoever uses
    a metric checks that the name is the one it expects.
    """
    head, slash, tail = unit.strip().partition("/")
    if not slash:
        return _single(head)
    top, bottom = _numerator(head), _denominator(tail)
    name = f"{top.name}/{bottom.name}"
    if name == "cycle/s":
        name = "hz"
    return BaseUnit(_ratio(top.factor, bottom.factor), name)


def _ratio(top: float, bottom: float) -> float:
    """top / bottom, exact where both are powers of ten (1 / 1e-9 is 999999999.9999999)."""
    value = top / bottom
    nearest = round(value)
    return float(nearest) if nearest and abs(value - nearest) < 1e-9 * value else value


def _single(unit: str) -> BaseUnit:
    if unit in _SECONDS:
        short = unit if unit in _NS else (unit[:2] if unit[0] in "mun" else "s")
        return BaseUnit(_NS[short], "ns")
    return _numerator(unit)


def _numerator(unit: str) -> BaseUnit:
    found = _PREFIXED.fullmatch(unit)
    if found:
        return BaseUnit(_PREFIX[found[1]], _PLURAL.get(found[2], found[2]))
    return BaseUnit(1.0, _PLURAL.get(unit, unit))


def _denominator(unit: str) -> BaseUnit:
    if unit in _SECONDS:
        return BaseUnit(_SECONDS[unit], "s")
    return _numerator(unit)
