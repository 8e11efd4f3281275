"""What can go wrong with a profiler as a program: absent, too old, stopped, out of disk.

What goes wrong inside a profile is said by `parsers.ncu_errors` and `parsers.nsys_errors`.
"""

from __future__ import annotations

import signal
from contextlib import suppress

from kernelroof.models.errors import KernelroofError

INSTALL = {
    "nsys": (
        "Install Nsight Systems (package nsight-systems of NVIDIA's or your distribution's repository, or "
        "https://developer.nvidia.com/nsight-systems), or name the program in KERNELROOF_NSYS; "
        "--timeline torch needs none."
    ),
    "ncu": (
        "Install Nsight Compute (package nsight-compute of NVIDIA's or your distribution's repository, or "
        "https://developer.nvidia.com/nsight-compute), or name the program in KERNELROOF_NCU; "
        "--counters traced needs none."
    ),
}


class ToolError(KernelroofError):
    """Base: a profiler could not be run as a program."""


class ToolMissing(ToolError):
    """The profiler is not installed, or not where its variable says."""


class ToolBroken(ToolError):
    """The profiler is there but does not start, or does not tell its version."""


class ToolFailed(ToolError):
    """The profiler ran and left no usable result, for a reason that is only in its own words."""


class ToolTimeout(ToolError):
    """The profiler was stopped because it took longer than allowed; what it had recorded is kept."""


class DiskFullError(ToolError):
    """No space was left where the profiler writes its report or its temporary files."""


class TargetFailed(ToolError):
    """The profiled program itself ended with an error."""


class NothingRecorded(ToolError):
    """nsys ended well and left no report."""


def ending(status: int) -> str:
    """How a program ended, in words: its status, or the signal that ended it (also as a shell passes it on)."""
    number = -status if status < 0 else status - 128
    with suppress(ValueError):
        return f"signal {number} ({signal.Signals(number).name})" if number > 0 else f"status {status}"
    return f"status {status}"
