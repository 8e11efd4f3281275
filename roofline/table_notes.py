"""What the figures of a table need beside them, in words for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelroof.roofline.place import TOLERANCE_PCT

ABOVE_ROOF = f"! above {TOLERANCE_PCT:g} % of the roof: operands in a cache, or the roof was measured too low"
NOT_THE_DIFFERENCE = "recoverable is not time minus ideal where launches have no figures or are above their roof"
NOTES = (ABOVE_ROOF, NOT_THE_DIFFERENCE)
_APART = 0.01
"""Beyond this part of a row's time, two of its figures differ."""


def table_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes under a table, from the rows that are shown.

    Args:
        rows: `time_ns`, `ideal_ns`, `recoverable_ns` and, where judged, `pct_of_roof`; None where not known.
    """
    above = any((row.get("pct_of_roof") or 0.0) > TOLERANCE_PCT for row in rows)
    known = [r for r in rows if None not in (r["time_ns"], r["ideal_ns"], r["recoverable_ns"])]
    apart = any(abs(r["time_ns"] - r["ideal_ns"] - r["recoverable_ns"]) > _APART * r["time_ns"] for r in known)
    return [*([ABOVE_ROOF] if above else []), *([NOT_THE_DIFFERENCE] if apart else [])]
