"""The pictures of a run: one roofline per phase, one per kernel role that takes most time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pandas as pd
from kernelroof.models.errors import OutputError
from kernelroof.roofline.plot import phase_roofline
from kernelroof.roofline.plot_kernel import kernel_roofline
from kernelroof.roofline.summary import estimate_points, top_kernels

if TYPE_CHECKING:
    from kernelroof.profile.pipeline import Pipeline


def draw_all(run: Pipeline) -> dict[str, Any]:
    """Draw every picture of a run into its folder; returns their names by phase."""
    folder = run.folder.file("kernels")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} can't be made ({error.strerror})", "Move away what is in its place.") from error
    for old in folder.glob("*_[0-9]*_*.png"):
        old.unlink()
    names: dict[str, Any] = {}
    load = run.job.driver
    what = (
        f"{run.job.spec.name}, batch {load.batch}, prompt {load.prompt}, output {load.output}, {load.dtype}, "
        f"{load.attn} attention, {load.cache} cache; {run.ceilings.name}"
    )
    for phase, wall in run.walls.items():
        warned = f"{wall['doubts'][0].split(':')[0]} (see wall.json); {what}" if wall["doubts"] else what
        steps = f"; sums over {run.steps(phase)} steps" if run.steps(phase) > 1 else ""
        modules = estimate_points(run.ops, phase)["modules"]
        estimate = {"phase": run.model_cost(phase), "modules": modules}
        name = f"roofline_{phase}.png"
        phase_roofline(run.kernels, run.ceilings, phase, estimate, run.folder.file(name), subtitle=warned + steps)
        names[phase] = {"roofline": name, "kernels": {}}
        for rank, (label, launches) in enumerate(top_kernels(run.kernels, phase, run.job.top), start=1):
            file = f"kernels/{phase}_{rank:02d}_{re.sub(r'[^A-Za-z0-9]+', '_', label).strip('_')}.png"
            own = _per_launch(launches)
            phase_each = tuple(x // run.steps(phase) for x in run.model_cost(phase))
            kernel_roofline(
                launches,
                run.ceilings,
                {"own": own, "phase": (phase_each[0], phase_each[1])},
                run.folder.file(file),
                title=f"{phase}: {label}",
                subtitle=warned + steps,
            )
            names[phase]["kernels"][label] = file
    return names


def _per_launch(launches: pd.DataFrame) -> tuple[float, float] | None:
    """Mean FLOPs and bytes of one launch as traced; None where nothing was traced for it."""
    flops = launches["flops"].mean()
    moved = (launches["dram_read_bytes"] + launches["dram_write_bytes"]).mean()
    return None if pd.isna(flops) or pd.isna(moved) else (float(flops), float(moved))
