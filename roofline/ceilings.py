"""The ceilings of one machine for one dtype: the numbers every roof is drawn from.

Imports nothing heavy: the estimate command reads ceilings too, and it must start at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kernelroof.models.errors import ReportError

ORIGINS = ("datasheet", "measured", "report", "given")


class Ceilings(NamedTuple):
    """What one machine can do at most, for the dtype of one run.

    Rates are per second and decimal (GB = 10^9 bytes); a fused multiply-add is 2 FLOP; peaks are dense.
    """

    name: str
    """the machine: a GPU's product name, or the CPU's"""
    flop_s: float
    """FLOP/s of a dense matrix product in `dtype`"""
    byte_s: float
    """bytes/s between memory (DRAM, HBM) and the processor"""
    cache_byte_s: float | None
    """bytes/s of the last cache before memory; None where it is not known"""
    dtype: str
    origin: str
    """datasheet, measured (in the same run), report (of a profiler) or given (by the user)"""
    memory_bytes: int | None
    """size of the memory that weights and KV cache must fit; None where it is not known"""
    note: str
    """how the figures were obtained, for people"""

    @property
    def ridge(self) -> float:
        """FLOP per byte at which the memory roof meets the compute roof."""
        return self.flop_s / self.byte_s

    def roof_flop_s(self, intensity: float) -> float:
        """FLOP/s that can be attained at most at `intensity` (FLOP per byte of memory traffic)."""
        return min(self.flop_s, self.byte_s * intensity)

    def ideal_ns(self, flops: float, dram_bytes: float) -> float:
        """Shortest time in ns for this work: the longer of computing it and of moving its bytes."""
        return max(flops / self.flop_s, dram_bytes / self.byte_s) * 1e9


def highest(rounds: Sequence[Ceilings]) -> Ceilings:
    """The ceilings of one machine measured several times: a roof is the most that was ever reached.

    Args:
        rounds: at least one, of the same machine and dtype.
    """
    first = rounds[0]
    caches = [c.cache_byte_s for c in rounds if c.cache_byte_s is not None]
    note = f"{first.note.split(';')[0]}; highest of {len(rounds)} rounds of products, memory and cache kernels"
    return first._replace(
        flop_s=max(c.flop_s for c in rounds),
        byte_s=max(c.byte_s for c in rounds),
        cache_byte_s=max(caches, default=None),
        note=note if len(rounds) > 1 else first.note,
    )


def checked(ceilings: Ceilings) -> Ceilings:
    """Return `ceilings` unchanged when every rate is a positive finite number.

    Raises:
        ReportError: a rate or the origin makes no sense; the message names the field.
    """
    rates: list[tuple[str, float | None]] = [("flop_s", ceilings.flop_s), ("byte_s", ceilings.byte_s)]
    if ceilings.cache_byte_s is not None:
        rates.append(("cache_byte_s", ceilings.cache_byte_s))
    for field, value in rates:
        if not _is_rate(value):
            raise ReportError(
                f"ceilings of {ceilings.name!r}: {field} is {value!r}, not a positive number",
                "Measure the ceilings again, or name the GPU.",
            )
    if ceilings.origin not in ORIGINS:
        raise ReportError(
            f"ceilings of {ceilings.name!r}: origin is {ceilings.origin!r}",
            f"Use one of {', '.join(ORIGINS)}.",
        )
    return ceilings


def _is_rate(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def to_json(ceilings: Ceilings, details: Mapping[str, Any] | None = None) -> str:
    """Text of `ceilings.json`: the fields of `Ceilings`, the ridge, and how each figure was measured."""
    data: dict[str, Any] = dict(ceilings._asdict())
    data["ridge_flop_per_byte"] = ceilings.ridge
    data["details"] = dict(details or {})
    return json.dumps(data, indent=2) + "\n"


def from_json(text: str) -> tuple[Ceilings, dict[str, Any]]:
    """Read what `to_json` wrote: the ceilings and the details of their measurement.

    Raises:
        ReportError: not JSON, or a field is missing or makes no sense.
    """
    hint = "Measure the ceilings again, or name the GPU."
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"ceilings.json is not JSON ({error})", hint) from None
    if not isinstance(data, dict):
        raise ReportError("ceilings.json holds no object", hint)
    missing = [field for field in Ceilings._fields if field not in data]
    if missing:
        raise ReportError(f"ceilings.json lacks {', '.join(missing)}", hint)
    details = data.get("details", {})
    ceilings = Ceilings(**{field: data[field] for field in Ceilings._fields})
    return checked(ceilings), details if isinstance(details, dict) else {}
