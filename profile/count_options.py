"""What can be chosen about profilers, and how launches are counted under ncu. Imports nothing heavy."""

from __future__ import annotations

from typing import NamedTuple

BACKENDS = ("auto", "torch", "nsight")
TIMELINES = ("nsys", "torch")
COUNTERS = ("ncu", "traced")


class CountOptions(NamedTuple):
    """How to count. section_set: a whole set of ncu's instead of the planned metrics. clock_control: base,
    none, or "" for base where clocks may be locked. top: only the N kernels of each phase with most time."""

    every_kernel: bool = False
    section_set: str = ""
    clock_control: str = ""
    top: int | None = None
