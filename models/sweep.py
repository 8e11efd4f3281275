"""Many estimates at once, as numpy arrays, with the very formulas of the single estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from kernelroof.models.coefficients import Coefficients
from kernelroof.models.estimate import Arithmetic, Costs, Flags, IdealTimes, PhaseCost, costs_of, ideal_times

NUMPY = Arithmetic(np.maximum, np.minimum, np.where)


class Points(NamedTuple):
    """One estimate per element; one-dimensional arrays of one length, or single numbers for all.

    `model` indexes the coefficients given to `estimate_points` (a model in its formats). Sizes are
    tokens and sequences, `flop_s` and `byte_s` are the device's peaks in FLOP/s and B/s;
    `quantised_flop_s` is that of products whose operands are both quantised (None: `flop_s`), see
    `kernelroof.models.estimate.quantised_peak`.
    """

    model: Any
    batch: Any
    prompt: Any
    output: Any
    flop_s: Any
    byte_s: Any
    quantised_flop_s: Any = None


def estimate_points(
    models: Sequence[Coefficients], points: Points, flags: Flags, *, overhead: float = 0.10
) -> tuple[Costs, IdealTimes]:
    """Estimate every point; each field of the results is an array (`stretches` and `quantised` are left empty).

    Counts are int64 and exact; of a model whose largest point would leave that range they are float64, as
    bytes of routed experts, which are expected values, always are.
    """
    given = points if points.quantised_flop_s is not None else points[:-1]
    columns = np.broadcast_arrays(*(np.asarray(p) for p in given))
    index = columns[0]
    order = np.argsort(index, kind="stable")
    ends = np.searchsorted(index[order], np.arange(len(models) + 1))
    results = _Results(len(index))
    for row, model in enumerate(models):
        chosen = order[ends[row] : ends[row + 1]]
        if not len(chosen):
            continue
        batch, prompt, output, flop_s, byte_s, *quantised = (c[chosen] for c in columns[1:])
        if _overflows(model, (batch, prompt, output), flags):
            batch, prompt, output = (sizes.astype(np.float64) for sizes in (batch, prompt, output))
        cost = costs_of(model, batch, prompt, output, flags, overhead, NUMPY)
        results.put(chosen, cost, ideal_times(cost, flop_s, byte_s, NUMPY, *quantised))
    return results.costs(), results.times()


_SIZES = tuple(f for f in Costs._fields if f not in ("prefill", "first_step", "decode", "stretches", "quantised"))
_PHASES = ("prefill", "first_step", "decode")


_SAFE = 1 << 60
"""Results up to this leave room for the sums and differences that they are made of."""


def _overflows(model: Coefficients, sizes: Sequence[Any], flags: Flags) -> bool:
    """Whether int64 arrays might wrap around: costs only grow with each size, so the largest of each tells."""
    batch, prompt, output = (int(s.max()) for s in sizes)
    cost = costs_of(model, batch, prompt, output, flags)
    found = [getattr(cost, f) for f in _SIZES] + [n for p in _PHASES for n in getattr(cost, p)]
    return bool(max(found) > _SAFE)


class _Results:
    """Columns that are filled model by model."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.columns: dict[tuple[str, str], Any] = {}

    def put(self, where: Any, cost: Costs, times: IdealTimes) -> None:
        for field in _SIZES:
            self._put(where, "", field, getattr(cost, field))
        for phase in _PHASES:
            for field in PhaseCost._fields:
                self._put(where, phase, field, getattr(getattr(cost, phase), field))
        for field in IdealTimes._fields:
            self._put(where, "times", field, getattr(times, field))

    def _put(self, where: Any, phase: str, field: str, value: Any) -> None:
        kind = np.asarray(value).dtype
        column = self.columns.get((phase, field))
        if column is None:
            column = np.zeros(self.length, dtype=kind)
        elif kind == np.float64 and column.dtype != np.float64:
            column = column.astype(np.float64)
        column[where] = value
        self.columns[phase, field] = column

    def costs(self) -> Costs:
        phases = {p: PhaseCost(*(self.columns.get((p, f)) for f in PhaseCost._fields)) for p in _PHASES}
        sizes: dict[str, Any] = {f: self.columns.get(("", f)) for f in _SIZES}
        return Costs(**sizes, **phases, stretches=())

    def times(self) -> IdealTimes:
        return IdealTimes(*(self.columns.get(("times", f)) for f in IdealTimes._fields))
