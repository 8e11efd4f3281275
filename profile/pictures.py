"""The pictures of a run: one roofline per phase, one per kernel role that takes most time.

All rooflines of phases share their axes, and all of kernels theirs, so that they can be laid side by side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from kernelroof.models.errors import OutputError
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.figure import with_format
from kernelroof.roofline.plot import phase_limits, phase_roofline
from kernelroof.roofline.plot_kernel import kernel_limits, kernel_roofline
from kernelroof.roofline.steady import short_doubts
from kernelroof.roofline.summary import estimate_points, top_kernels

_LONGEST = 100
"""Characters of a kernel's label in the name of its picture; its rank before it tells pictures apart."""


class Drawable(Protocol):
    """What pictures need of a run: one in the making, or a finished one."""

    @property
    def kernels(self) -> pd.DataFrame: ...
    @property
    def ops(self) -> pd.DataFrame: ...
    @property
    def walls(self) -> dict[str, dict[str, Any]]: ...
    @property
    def ceilings(self) -> Ceilings: ...
    def steps(self, phase: str) -> int: ...
    def model_cost(self, phase: str) -> tuple[int, int]: ...


def draw_all(run: Drawable, folder: Path, what: str, *, top: int, formats: Sequence[str] = ("png",)) -> dict[str, Any]:
    """Draw every picture of a run into a folder; returns their names by phase, in the first format.

    Args:
        what: what was run, for people.
        top: kernel roles of each phase that get a picture.

    Raises:
        OutputError: a file can't be written.
    """
    kernels = folder / "kernels"
    try:
        kernels.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{kernels} can't be made ({error.strerror})", "Move away what is in its place.") from error
    for old in [p for f in formats for phase in run.walls for p in kernels.glob(f"{phase}_[0-9][0-9]_*.{f}")]:
        old.unlink()
    estimates = {
        phase: {"phase": run.model_cost(phase), "modules": estimate_points(run.ops, phase)["modules"]}
        for phase in run.walls
    }
    tops = {phase: list(top_kernels(run.kernels, phase, top)) for phase in run.walls}
    works = {phase: [_works(run, phase, launches) for _, launches in found] for phase, found in tops.items()}
    whole = phase_limits(run.kernels, run.ceilings, estimates)
    drawn = [(launches, work) for p in tops for (_, launches), work in zip(tops[p], works[p], strict=True)]
    each = kernel_limits(drawn, run.ceilings)
    names: dict[str, Any] = {}
    for phase, wall in run.walls.items():
        number = run.steps(phase)
        steps = f"; {number} steps" if number > 1 else ""
        warned = f"\nin doubt: {short_doubts(wall['doubts'])}" if wall["doubts"] else ""
        subtitle = f"{what}{steps}{warned}"
        path = folder / f"roofline_{phase}.png"
        phase_roofline(
            run.kernels,
            run.ceilings,
            phase,
            estimates[phase],
            path,
            subtitle=subtitle,
            limits=whole,
            steps=number,
            wall_ns=wall["bare_ns"],
            formats=formats,
        )
        names[phase] = {"roofline": with_format(path, formats[0]).name, "kernels": {}}
        for rank, ((label, launches), work) in enumerate(zip(tops[phase], works[phase], strict=True), start=1):
            file = kernels / f"{phase}_{rank:02d}_{slug(label)}.png"
            kernel_roofline(
                launches,
                run.ceilings,
                work,
                file,
                title=f"{phase}: {label}",
                subtitle=subtitle,
                limits=each,
                steps=number,
                formats=formats,
            )
            names[phase]["kernels"][label] = f"kernels/{with_format(file, formats[0]).name}"
    return names


def what_was_run(identity: Mapping[str, Any], model: str, machine: str) -> str:
    """Model, workload and machine, in words."""
    load = {k: identity[k] for k in ("batch", "prompt", "output", "dtype", "attn", "cache")}
    return (
        f"{model}, batch {load['batch']}, prompt {load['prompt']}, output {load['output']}, {load['dtype']}, "
        f"{load['attn']} attention, {load['cache']} cache; {machine}"
    )


def files_of(names: Mapping[str, Any], formats: Sequence[str]) -> list[str]:
    """Every file that `draw_all` wrote, relative to its folder."""
    first = [name for phase in names.values() for name in (phase["roofline"], *phase["kernels"].values())]
    return [name.removesuffix(formats[0]) + other for name in first for other in formats]


def slug(label: str) -> str:
    """A label as part of a file's name: generated kernels have names of hundreds of characters."""
    return re.sub(r"[^A-Za-z0-9]+", "_", label).strip("_")[:_LONGEST].rstrip("_")


def _works(run: Drawable, phase: str, launches: pd.DataFrame) -> dict[str, tuple[float, float] | None]:
    """Work of one launch and of one forward of its phase, as the model itself says."""
    flops, moved = (x // run.steps(phase) for x in run.model_cost(phase))
    return {"own": _per_launch(launches), "phase": (float(flops), float(moved))}


def _per_launch(launches: pd.DataFrame) -> tuple[float, float] | None:
    """Mean FLOPs and bytes of one launch as traced; None where nothing was traced for it."""
    flops = launches["flops"].mean()
    moved = (launches["dram_read_bytes"] + launches["dram_write_bytes"]).mean()
    return None if pd.isna(flops) or pd.isna(moved) else (float(flops), float(moved))
