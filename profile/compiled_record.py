"""compiled.json: what was compiled, how long that took, and how much of the kernels' time modules are known for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelroof.profile.runfolder import read_json
from kernelroof.roofline.units import seconds

if TYPE_CHECKING:
    import pandas as pd
    from kernelroof.profile.driver_spec import DriverSpec

COMPILED = "compiled.json"
_LITTLE_PCT = 0.05


def compile_words(driver: DriverSpec) -> dict[str, Any]:
    """What run.json says of a compiled run."""
    return {
        "mode": driver.compile,
        "backend": "inductor",
        "ranges": "phases and steps only: a module's hook would break the graph or be traced away",
        "modules": "from inductor: each kernel call of its code comes with the graph nodes that it computes",
        "timing": "compiling and warming up are before all measured passes",
    }


def compiled_record(compiled: Mapping[str, Any], kernels: pd.DataFrame, phases: Sequence[str]) -> dict[str, Any]:
    """The content of compiled.json: the record of the compiled model, and the coverage of each phase.

    Args:
        kernels: as placed, for the time that each was given a module for.
    """
    from kernelroof.roofline.compiled_match import coverage, reasons_lost

    return {
        **compiled,
        "coverage": {phase: coverage(kernels, phase) for phase in phases},
        "unattributed": {phase: reasons_lost(kernels, phase) for phase in phases},
    }


def compile_doubts(compiled: Mapping[str, Any]) -> list[str]:
    """What makes the figures of a compiled run doubtful."""
    lines = []
    if late := compiled["late_compilations"]:
        lines.append(f"RECOMPILED: {late} graphs were compiled again during measured passes, which then took that long")
    if breaks := compiled["graph_breaks"]:
        first = " ".join(next(iter(breaks)).split())[:120]
        lines.append(f"{sum(breaks.values())} graph breaks: parts of the model ran eagerly, first: {first}")
    if skipped := compiled["skipped_cuda_graphs"]:
        lines.append(f"torch left CUDA graphs out {skipped} times: those parts were launched kernel by kernel")
    if compiled["cuda_graphs"]:
        lines.append(
            "CUDA graphs keep one static cache: the prefill attends over its whole length under a mask, and the "
            "estimate over the prompt only"
        )
    return lines


def compiled_lines(folder: Path) -> list[str]:
    """Lines for the terminal: compile time, and how much of the time is known by module."""
    record = read_json(folder / COMPILED)
    calls = sum(len(g["calls"]) for g in record["graphs"])
    lines = [
        f"torch.compile ({record['mode']}): compiled and warmed up in {seconds(record['seconds'])}, outside of all "
        f"times; {len(record['graphs'])} graphs, {calls} kernel calls"
    ]
    for phase, found in record["coverage"].items():
        total = sum(found.values())
        if not total:
            continue
        module, only, dispatch = (100 * found[k] / total for k in ("module_ns", "phase_ns", "dispatch_ns"))
        lines.append(
            f"{phase}: {module:.1f} % of kernel time attributed to modules, {only:.1f} % to the phase only, "
            f"{dispatch:.1f} % is dispatch of compiled code"
        )
        if only > _LITTLE_PCT:
            lines += [f"  not attributed: {words}" for words in record["unattributed"][phase]]
    lines.append("generated kernels have no FLOPs and bytes: the traced ops that they replace move more than they do")
    return lines
