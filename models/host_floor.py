"""The least time that the host needs to launch the kernels of a step: a term beside the kernels' own time.

Host and device overlap: a step lasts at least as long as the longer of the two, not their sum. With few tokens and a
fast GPU that is the host; then faster kernels change nothing, and fewer launches (fusion, CUDA graphs) do. A step
that is replayed as a CUDA graph has no such term.

The figures are assumptions from public sources, not measurements of this machine. A run measures its own: the gaps.
"""

from __future__ import annotations

from typing import NamedTuple

from kernelroof.models.errors import UsageError


class LaunchCost(NamedTuple):
    """Host time per kernel, with the range that sources span."""

    us: float
    low_us: float
    high_us: float
    source: str


LAUNCH_COSTS = {
    "eager": LaunchCost(
        8.0,
        5.0,
        25.0,
        "PyTorch ops one by one from Python: 5 to 10 us of dispatch per op (mortalapps.com, CUDA graphs and launch "
        "overhead), 5 to 25 us (jiahuanglin.xyz, from PyTorch op to kernel launch); the default is an assumption "
        "within both",
    ),
    "launch": LaunchCost(
        5.0,
        1.3,
        6.0,
        "launches alone, without a framework's dispatch: 4 to 6 us (susun-blog.com, launch overhead and CUDA graphs), "
        "3.4 us of gap per launch in 914 launches (pull request 380 of turboderp-org/exllamav3), 1.3 us for a bare "
        "cuLaunchKernel (pull request 1016 of meta-pytorch/tritonbench); the default is their good ordinary case",
    ),
}


class HostFloor(NamedTuple):
    """The host's least time for one step."""

    seconds: float
    low_s: float
    high_s: float
    source: str


def host_floor(kernels_per_step: int, way: str = "eager", launch_us: float | None = None) -> HostFloor:
    """Return kernels per step times the cost of a launch.

    Args:
        kernels_per_step: launches of the step, as counted in a recording or traced.
        way: eager (PyTorch from Python) or launch (launches alone).
        launch_us: your own cost per kernel; it replaces the assumption and its range.

    Raises:
        UsageError: a negative number, or an unknown way.
    """
    if kernels_per_step < 0 or (launch_us is not None and launch_us < 0):
        raise UsageError("kernels per step and the cost of a launch can't be negative", "Count launches from 0.")
    if launch_us is not None:
        seconds = kernels_per_step * launch_us * 1e-6
        return HostFloor(seconds, seconds, seconds, "as given")
    cost = LAUNCH_COSTS.get(way)
    if cost is None:
        raise UsageError(f"unknown way to launch {way!r}", f"Use one of {', '.join(LAUNCH_COSTS)}.")
    unit = kernels_per_step * 1e-6
    return HostFloor(unit * cost.us, unit * cost.low_us, unit * cost.high_us, cost.source)
