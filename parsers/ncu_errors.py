"""What can go wrong with Nsight Compute and its exports, one class for each cause and remedy.

Each error keeps the lines it was recognised by (`evidence`), and its default hint says what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kernelroof.models.errors import ReportError

_EXPORT = "ncu --import REPORT.ncu-rep --csv --page raw --print-units base"


class NcuError(ReportError):
    """Base of everything that Nsight Compute or one of its exports can refuse.

    Args:
        what: what happened and where; empty for the class's own sentence.
        hint: what to do next; empty for the class's own remedy.
        evidence: the tool's own lines that say so.
    """

    default_what: ClassVar[str] = "Nsight Compute failed"
    default_hint: ClassVar[str] = "Read the profiler's own messages above."

    def __init__(self, what: str = "", hint: str = "", evidence: Iterable[str] = ()) -> None:
        self.evidence = tuple(evidence)
        super().__init__(what or self.default_what, hint or self.default_hint)


class CounterPermissionError(NcuError):
    """The driver refuses the GPU's performance counters to this user (ERR_NVGPUCTRPERM)."""

    default_what = "The driver does not let this user read the GPU's performance counters (ERR_NVGPUCTRPERM)"
    default_hint = (
        "As administrator put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into "
        "/etc/modprobe.d/nvidia-profiler.conf and reboot; in a container start it with --cap-add=SYS_ADMIN; "
        "or run with --backend torch, which needs no counters (real durations, traced FLOPs and bytes)."
    )
    wsl_hint: ClassVar[str] = (
        "Under WSL the setting is on the Windows side: NVIDIA Control Panel, Desktop, Enable Developer Settings, "
        "then Developer, Manage GPU Performance Counters, allow access to all users, and restart WSL; "
        "or run with --backend torch, which needs no counters (real durations, traced FLOPs and bytes)."
    )


class CountersBusyError(NcuError):
    """Another tool holds the counters (DCGM, another profiler)."""

    default_what = "Another tool holds the GPU's performance counters"
    default_hint = (
        "Stop other profilers and pause DCGM (`dcgmi profile --pause`, and `--resume` afterwards), then run again."
    )


class DriverError(NcuError):
    """The CUDA driver can't be loaded or is not one that this ncu works with."""

    default_what = "Nsight Compute can't work with this CUDA driver"
    default_hint = (
        "Use an ncu that the installed driver supports (nvidia-smi names the driver), and see that the library "
        "path finds the driver's own libcuda.so.1 and no stub from a toolkit's lib/stubs folder."
    )


class ClockLockError(NcuError):
    """ncu may not lock the clocks of this device (MIG, a virtual GPU, no administrator)."""

    default_what = "Nsight Compute can't lock this GPU's clocks"
    default_hint = "Run ncu with --clock-control none, or lock the clocks outside of it (nvidia-smi --lock-gpu-clocks)."


class UnsupportedDeviceError(NcuError):
    """This version of ncu does not know this GPU."""

    default_what = "This version of Nsight Compute does not support the GPU"
    default_hint = "See `ncu --list-chips`; install a newer Nsight Compute, or for GPUs before Volta use nvprof."


class OptionError(NcuError):
    """ncu does not accept its command line."""

    default_what = "Nsight Compute does not accept its command line"
    default_hint = "Check the option against `ncu --help` of the installed version."


class UnknownMetricError(NcuError):
    """A metric or section was asked for that this chip or this version does not have."""

    default_what = "This chip or this version of Nsight Compute lacks a metric that was asked for"
    default_hint = "List what there is with `ncu --query-metrics --chips CHIP` and ask only for that."


class ProfilingFailedError(NcuError):
    """ncu connected, but profiling a kernel failed for a reason that it does not give."""

    default_what = "Nsight Compute could not profile a kernel"
    default_hint = (
        "Try again with --replay-mode application, with fewer metrics, and with no other process on the GPU; "
        "an update of the driver or of ncu often helps. What was recorded before is kept."
    )


class NoMetricsError(NcuError):
    """Kernels were launched, but nothing was collected for them (a section set that does not exist)."""

    default_what = "Nsight Compute found no metrics to collect"
    default_hint = "Check --set, --section and --metrics against `ncu --list-sets` and `ncu --list-sections`."


class NoKernelsError(NcuError):
    """ncu ran, and profiled no kernel."""

    default_what = "Nsight Compute profiled no kernels"
    default_hint = (
        "If the kernels are launched by child processes, add --target-processes all; if ranges are filtered, "
        "a push/pop range is named with a trailing slash (--nvtx --nvtx-include 'decode/'), and only kernels "
        "launched by the thread that pushed it count; check --kernel-name and --launch-skip as well."
    )


class NoRangesError(NcuError):
    """A range replay found no range."""

    default_what = "Nsight Compute profiled no ranges"
    default_hint = "Open the range with cudaProfilerStart and Stop or an NVTX range named by --nvtx-include."


class ReplayInterruptedError(NcuError):
    """The program was ended while ncu was replaying; what was recorded before is kept."""

    default_what = "The profiled program was ended in the middle of a replay"
    default_hint = "Use what was recorded, or run again with fewer kernels (--launch-count) and a longer time limit."


class ProgramFailedError(NcuError):
    """The profiled program itself ended with an error."""

    default_what = "The profiled program ended with an error"
    default_hint = "Run it once without the profiler and mend it first."


class NoTableError(NcuError):
    """A file that holds no table of metrics; where it is a log, the report that it names is in the message."""

    default_what = "The file holds no Nsight Compute table"
    default_hint = f"Export one with `{_EXPORT}`."


class WrongPageError(NcuError):
    """A page of ncu that has no row per kernel and metric (a summary, the source page)."""

    default_what = "This page of Nsight Compute has no row for each kernel"
    default_hint = f"Export it without --print-summary: `{_EXPORT}`."


class AmbiguousNumberError(NcuError):
    """A number that means one thing in one locale and a thousand times that in another."""

    default_what = "A number in the file can be read in two ways"
    default_hint = f"Export it again in a fixed locale: `LC_ALL=C {_EXPORT}`."


class ReportReaderError(NcuError):
    """A .ncu-rep file that can't be read here."""

    default_what = "The report can't be read"
    default_hint = f"Install NVIDIA's reader (pip install ncu-report), or export the report: `{_EXPORT}`."
