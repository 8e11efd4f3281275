"""Rate of one kernel over repeats, on a CPU or a CUDA device."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

_LEAST_REPEATS = 3
_BATCH = 8


class Rate(NamedTuple):
    """What a kernel did per second: in its fastest repeat, and in the median one."""

    best: float
    median: float


def rate_of(run: Callable[[], object], amount: float, limit_s: float, device: torch.device) -> Rate:
    """`amount` (bytes or FLOP of one call of `run`) per second, one warm-up left out of the median.

    Repeats until `limit_s` is used up, but at least three times, unless one call alone takes longer
    than `limit_s`: then once.
    """
    once = _cuda_timer(device) if device.type == "cuda" else _cpu_time
    warm_s = once(run)
    least = 1 if warm_s > limit_s else _LEAST_REPEATS
    times_s: list[float] = []
    spent_s = 0.0
    while len(times_s) < least or spent_s < limit_s:
        times_s.append(max(once(run), 1e-9))
        # A clock too coarse to see the call must not make this loop endless.
        spent_s += max(times_s[-1], 1e-7)
        if warm_s > limit_s:
            break
    return Rate(amount / min(*times_s, max(warm_s, 1e-9), math.inf), amount / statistics.median(times_s))


def _cpu_time(run: Callable[[], object]) -> float:
    started_ns = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - started_ns) / 1e9


def _cuda_timer(device: torch.device) -> Callable[[Callable[[], object]], float]:
    """Time on the device between two events; launches are enqueued in a batch to hide their cost."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(run: Callable[[], object]) -> float:
        with torch.cuda.device(device):
            start.record()
            for _ in range(_BATCH):
                run()
            end.record()
            end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / _BATCH

    return once
