"""One call of one module, the unit that counting runs are planned in. Imports nothing heavy."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """One call of one module: what a counting run opens the profiler around."""

    phase: str
    step: int
    module: str
