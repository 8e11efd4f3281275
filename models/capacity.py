"""What fits and where bounds turn: largest batch, largest context, model sizes, the batch of the ridge.

All are answered by the estimate itself, by bisection on one size: total bytes and intensity only grow with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kernelroof.models.coefficients import coefficients
from kernelroof.models.dtypes import BITS
from kernelroof.models.estimate import compute_time, costs_of, flags_of, quantised_peak
from kernelroof.models.spec import ModelSpec
from kernelroof.models.workload import Workload, precision_of

_MOST = 1 << 32


def largest(holds: Callable[[int], bool], most: int = _MOST) -> int:
    """The largest n in 1..most for which `holds`, which is true up to some n and false after it; 0 if never."""
    if not holds(1):
        return 0
    low, high = 1, 2
    while high <= most and holds(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def largest_batch(spec: ModelSpec, workload: Workload, memory_bytes: int) -> int:
    """Sequences of prompt + output tokens that fit beside the weights, overhead included; 0 if not even one does."""
    total = _total_bytes(spec, workload)
    return largest(lambda batch: total(batch, workload.prompt) <= memory_bytes)


def largest_context(spec: ModelSpec, workload: Workload, memory_bytes: int) -> int:
    """Tokens (prompt + output) per sequence that fit at the workload's batch and output; 0 if not even one does.

    Not more than the model has positions, where it has a limit.
    """
    total = _total_bytes(spec, workload)
    room = _MOST if spec.max_positions is None else spec.max_positions - workload.output
    prompt = largest(lambda prompt: total(workload.batch, prompt) <= memory_bytes, max(room, 1))
    return prompt + workload.output if prompt else 0


def compute_bound_batch(
    spec: ModelSpec,
    workload: Workload,
    flop_s: float,
    byte_s: float,
    most: int = 1 << 20,
    quantised_peaks: Mapping[str, float] | None = None,
) -> int | None:
    """The batch from which the first decode step is compute-bound; None if it is not at any up to `most`.

    Weights are shared by the batch and the cache is not: where attention alone moves more than the ridge
    allows, no batch is large enough.
    """
    model, flags = coefficients(spec, precision_of(spec, workload)), flags_of(workload)
    apart = quantised_peak(model.quantised, quantised_peaks or {}, flop_s)

    def memory_bound(batch: int) -> bool:
        step = costs_of(model, batch, workload.prompt, workload.output, flags).first_step
        return bool(compute_time(step, flop_s, apart) < step.bytes / byte_s)

    found = largest(memory_bound, most)
    return None if found == most else found + 1


def cache_outgrows_weights(spec: ModelSpec, workload: Workload) -> int | None:
    """Tokens per sequence at which the cache of the workload's batch is larger than the weights; None if never.

    The number is not limited by the model's positions.
    """
    model, flags = coefficients(spec, precision_of(spec, workload)), flags_of(workload)

    def smaller(tokens: int) -> bool:
        return bool(costs_of(model, workload.batch, tokens, 0, flags).kv_bytes <= model.weight_bytes)

    found = largest(smaller)
    return None if found == _MOST else found + 1


class Room(NamedTuple):
    """How many parameters fit a memory at one format."""

    dtype: str
    bytes_per_parameter: float
    parameters: int


def parameters_that_fit(memory_bytes: float, reserved_bytes: float = 0, overhead: float = 0.0) -> list[Room]:
    """The parameter count whose weights alone fill a memory, format by format.

    Args:
        memory_bytes: of the GPU.
        reserved_bytes: kept free for the cache, activations and the framework.
        overhead: share added to the weights.
    """
    room = max(memory_bytes - reserved_bytes, 0) / (1 + overhead)
    return [Room(dtype, bits / 8, int(room * 8 / bits)) for dtype, bits in BITS.items()]


def _total_bytes(spec: ModelSpec, workload: Workload) -> Callable[[int, int], float]:
    model, flags = coefficients(spec, precision_of(spec, workload)), flags_of(workload)

    def total(batch: int, prompt: int) -> float:
        return float(costs_of(model, batch, prompt, workload.output, flags, workload.overhead).total_bytes)

    return total
