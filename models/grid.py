"""Every combination of models, formats, GPUs and sizes, estimated as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from kernelroof.models.coefficients import coefficients
from kernelroof.models.errors import UsageError
from kernelroof.models.estimate import Costs, IdealTimes, flags_of, quantised_peak
from kernelroof.models.spec import ModelSpec
from kernelroof.models.sweep import Points, estimate_points
from kernelroof.models.workload import Workload, precision_of

MOST_POINTS = 20_000_000
"""More would not fit the memory of an ordinary machine: a point takes about 400 bytes."""

_NO_LIMIT = 1 << 60
"""Positions of a model that names no limit."""


class Device(NamedTuple):
    """A GPU with its peaks by format that computes (FLOP/s; None where it lacks the format)."""

    key: str
    byte_s: float
    memory_bytes: int
    flop_s: dict[str, float | None]
    quantised: Mapping[str, float] = MappingProxyType({})
    """Peaks of products of quantised operands, by class."""


class Grid(NamedTuple):
    """Indices of each point along the six axes, and what was estimated for it."""

    row: Any
    """Into the (spec, workload) pairs."""
    device: Any
    batch: Any
    prompt: Any
    output: Any
    costs: Costs
    times: IdealTimes
    """NaN where the GPU lacks the format, or the model has too few positions."""
    flop_s: Any
    byte_s: Any
    memory_bytes: Any
    too_long: Any
    """prompt + output exceed the model's positions."""
    quantised_flop_s: Any = None
    """Peak of products of quantised operands; None: `flop_s`."""


def estimate_grid(
    rows: Sequence[tuple[ModelSpec, Workload]],
    devices: Sequence[Device],
    batches: Sequence[int],
    prompts: Sequence[int],
    outputs: Sequence[int],
) -> Grid:
    """Estimate the product of all axes; `rows` are models in formats, whose conventions must be alike.

    Raises:
        UsageError: more points than `MOST_POINTS`.
    """
    shape = (len(rows), len(devices), len(batches), len(prompts), len(outputs))
    count = int(np.prod(shape, dtype=np.float64))
    if count > MOST_POINTS:
        raise UsageError(f"{count:,} combinations are too many", f"Ask for {MOST_POINTS:,} at most at a time.")
    row, device, b, p, o = (axis.ravel() for axis in np.indices(shape, dtype=np.int32))
    batch, prompt, output = (
        np.asarray(sizes, dtype=np.int64)[index] for sizes, index in ((batches, b), (prompts, p), (outputs, o))
    )
    peaks = [[d.flop_s.get(load.dtype) or np.nan for d in devices] for _, load in rows]
    flop_s = np.asarray(peaks, dtype=np.float64)[row, device]
    byte_s = np.asarray([d.byte_s for d in devices])[device]
    models = [coefficients(spec, precision_of(spec, load)) for spec, load in rows]
    apart = [
        [quantised_peak(m.quantised, d.quantised, peak) for d, peak in zip(devices, line, strict=True)]
        for m, line in zip(models, peaks, strict=True)
    ]
    quantised = np.asarray(apart, dtype=np.float64)[row, device] if any(m.quantised for m in models) else None
    load = rows[0][1]
    cost, times = estimate_points(
        models, Points(row, batch, prompt, output, flop_s, byte_s, quantised), flags_of(load), overhead=load.overhead
    )
    too_long = prompt + output > np.asarray([spec.max_positions or _NO_LIMIT for spec, _ in rows])[row]
    times = IdealTimes(*(np.where(too_long, np.nan, t) for t in times))
    memory_bytes = np.asarray([d.memory_bytes for d in devices])[device]
    return Grid(row, device, batch, prompt, output, cost, times, flop_s, byte_s, memory_bytes, too_long, quantised)
