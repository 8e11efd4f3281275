"""The time in which no kernel ran, each stretch given to the launch that ended it.

What a kernel had to wait for (Python, dispatch, the launch itself) is then found where it arises: in the module
whose next kernel came late. The stretch after a phase's last kernel belongs to no module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd
    from kernelroof.parsers.kineto import Kineto

Ints = npt.NDArray[np.int64]


def idle_before(start: Ints, end: Ints, begun: Any) -> Ints:
    """Time right before each interval in which none of them ran, in their unit.

    Intervals may overlap (several streams): what starts while another runs waited for nothing. Where `begun` is one
    number, the sum is all time from then to the last start in which none ran.

    Args:
        begun: from when on time counts, for all intervals or for each; before it nothing is idle.
    """
    order = np.argsort(start, kind="stable")
    first = np.broadcast_to(np.asarray(begun, dtype=np.int64), start.shape)[order]
    reached = np.maximum.accumulate(end[order])
    before = np.maximum(np.append(first[:1], reached[:-1]), first)
    out = np.zeros(len(start), dtype=np.int64)
    out[order] = np.maximum(start[order] - before, 0)
    return out


class OpGaps:
    """The stretches of a phase on a CPU in which no op ran: one before each outermost op, and the rest."""

    def __init__(self, kineto: Kineto, phase: str, costs: Mapping[str, float]) -> None:
        """costs: `op_ns` and `range_ns`, what recording adds per op and per range."""
        ops, ranges = kineto.ops, kineto.ranges
        outermost = ops[(ops["phase"] == phase) & ops["parent"].isna()].sort_values("start_ns", kind="stable")
        own = ranges[ranges["phase"] == phase]
        whole = own[own["level"] == "phase"].sort_values("start_ns")
        # The phase's own range starts and ends outside of itself.
        inside = own[(own["level"] != "phase") & own["op_event"].isna()]
        start = outermost["start_ns"].to_numpy(np.int64)
        begins = (whole["start_ns"] if len(whole) else outermost["start_ns"][:1]).to_numpy(np.int64)
        within = np.maximum(np.searchsorted(begins, start, side="right") - 1, 0)
        self._events = outermost["event"].to_numpy(np.int64)
        self._lengths = idle_before(start, start + outermost["dur_ns"].to_numpy(np.int64), begins[within])
        self._all_ns = int(whole["dur_ns"].sum()) - int(outermost["dur_ns"].sum())
        # A range costs the stretch that it begins in.
        at = np.searchsorted(start, inside["start_ns"].to_numpy(np.int64), side="left")
        self._added = np.bincount(at, minlength=len(start) + 1) * max(costs["range_ns"], 0.0)
        self._added[:-1] += max(costs["op_ns"], 0.0)

    @property
    def cost_ns(self) -> float:
        """What recording added to all stretches."""
        return float(self._added.sum())

    def before(self, events: pd.Series[int], gap_ns: int, charged: float) -> Ints:
        """The stretch right before each of these ops on the bare run's clock; 0 for those inside another op.

        Args:
            gap_ns: what all stretches take on that clock, the one after the last op included.
            charged: which part of `cost_ns` was taken off.
        """
        rest = max(self._all_ns - int(self._lengths.sum()), 0)
        left = np.maximum(np.append(self._lengths, rest) - charged * self._added, 0.0)
        share = gap_ns / float(left.sum()) if left.sum() > 0 else 0.0
        found = np.floor(left[:-1] * share).astype(np.int64)
        by_event = dict(zip(self._events.tolist(), found.tolist(), strict=True))
        return np.array([by_event.get(event, 0) for event in events.tolist()], dtype=np.int64)
