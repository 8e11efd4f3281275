"""Which timeline and which counters a run uses: what was asked for, against what this machine has."""

from __future__ import annotations

from typing import NamedTuple

from kernelroof.models.errors import KernelroofError, UsageError
from kernelroof.profile.tool_errors import ToolError
from kernelroof.profile.tools import find_tool

NO_GPU_HINT = "Use --backend torch: on a CPU ops are the kernels, with measured roofs and traced FLOPs and bytes."


class BackendUnavailable(KernelroofError):
    """A backend was asked for that this machine can't run."""


class Gpu(NamedTuple):
    """The GPU of a run: name, compute capability ("9.0")."""

    name: str
    cc: str


class Sources(NamedTuple):
    """Where times and where FLOPs and bytes come from.

    may_fall_back: refused counters end in traced ones. timeline_may_fall_back: where nsys fails, torch records.
    """

    timeline: str = "torch"
    counters: str = "traced"
    may_fall_back: bool = False
    timeline_may_fall_back: bool = False

    @property
    def uses_nsight(self) -> bool:
        """Whether a profiler of NVIDIA's runs the driver."""
        return self.timeline == "nsys" or self.counters == "ncu"


def find_gpu(device: str) -> Gpu | None:
    """The GPU that a run on `device` uses; None on a CPU or where torch sees none. Imports torch."""
    if not device.startswith("cuda"):
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    chip = torch.cuda.get_device_properties(torch.device(device))
    return Gpu(str(chip.name), f"{chip.major}.{chip.minor}")


def choose_sources(
    backend: str, timeline: str | None, counters: str | None, gpu: Gpu | None
) -> tuple[Sources, list[str]]:
    """The sources of a run, and one line for each thing that this machine lacks.

    Args:
        backend: auto, torch or nsight.
        timeline, counters: asked for by name, else None: the backend's own.

    Raises:
        UsageError: a backend and a source that contradict each other.
        BackendUnavailable: nsight, nsys or ncu was asked for and there is no GPU.
        ToolError: it was asked for and the program is missing.
    """
    if backend == "torch" and (timeline == "nsys" or counters == "ncu"):
        asked = "--timeline nsys" if timeline == "nsys" else "--counters ncu"
        raise UsageError(f"--backend torch and {asked} exclude each other", "Leave one of them out.")
    if backend == "nsight" and timeline == "torch" and counters == "traced":
        raise UsageError(
            "--backend nsight with --timeline torch and --counters traced uses nothing of Nsight",
            "Use --backend torch.",
        )
    must_timeline = timeline == "nsys" or (backend == "nsight" and timeline is None)
    must_counters = counters == "ncu" or (backend == "nsight" and counters is None)
    if gpu is None:
        if must_timeline or must_counters:
            asked = "--backend nsight" if backend == "nsight" else "nsys or ncu"
            raise BackendUnavailable(f"{asked} was asked for, and this run has no GPU", NO_GPU_HINT)
        lost = ["no GPU in this run: torch backend; ops are the kernels, FLOPs and bytes are traced, not counted"]
        return Sources(), lost if backend == "auto" else []
    may_use = backend != "torch"
    lines: list[str] = []
    use_timeline = _usable("nsys", must_timeline, may_use and timeline is None, lines)
    use_counters = _usable("ncu", must_counters, may_use and counters is None, lines)
    names = ("nsys" if use_timeline else "torch", "ncu" if use_counters else "traced")
    return Sources(*names, not must_counters, not must_timeline), lines


_LOST = {
    "nsys": "times come from torch.profiler, which slows the host down more",
    "ncu": "FLOPs and bytes are traced, not counted; no DRAM and SM shares",
}


def _usable(name: str, must: bool, may: bool, lines: list[str]) -> bool:
    """Whether a tool is used: an absent one that must be there is an error, another is a line."""
    if not must and not may:
        return False
    try:
        find_tool(name)
    except ToolError as error:
        if must:
            raise
        lines.append(f"{error.what}: {_LOST[name]}")
        return False
    return True
