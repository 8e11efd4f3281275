"""`estimate --calibrate RUN`: the factors of a finished run applied to another workload or model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from kernelroof.models.errors import UsageError
from kernelroof.models.trace import trace
from kernelroof.models.workload import Workload
from kernelroof.profile.runfolder import read_json
from kernelroof.roofline.calibrate import Prediction, calibration, predict


def run_dtype(folder: str) -> str:
    """The format that a run computed in.

    Raises:
        OutputError: the folder holds no run that can be read.
        UsageError: the run did not end.
    """
    return str(_run(folder)["identity"]["dtype"])


def calibrated_record(folder: str, config: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
    """What the run's factors say of a model and workload, as a record; times in ms.

    The model is traced on the meta device, so its elementwise kernels and cache copies are in it.

    Raises:
        OutputError: the folder lacks a file or holds a damaged one.
        UsageError: the run did not end, or computed in another format than is asked for.
        ReportError: nothing in the run can be learned from.
    """
    run = _run(folder)
    identity = run["identity"]
    if identity["dtype"] != workload.dtype:
        raise UsageError(
            f"the run {folder} computed in {identity['dtype']}, the estimate is for {workload.dtype}",
            f"Add --dtype {identity['dtype']}.",
        )
    if workload.weights_dtype != workload.dtype or workload.kv_dtype != workload.dtype:
        raise UsageError("a run's factors are for the formats it ran in", "Leave out --weights-dtype and --kv-dtype.")
    if workload.cache == "ideal":
        raise UsageError("no model runs with an ideal cache", "Choose --cache dynamic or static with --calibrate.")
    path = Path(folder)
    kernels = pd.read_csv(path / "kernels.csv", dtype={"module": str, "kind": str, "kernel": str})
    learned = calibration(identity, read_json(path / "ceilings.json"), read_json(path / "wall.json"), kernels)
    traced = trace(
        dict(config),
        batch=workload.batch,
        prompt=workload.prompt,
        output=workload.output,
        dtype=workload.dtype,
        attn=workload.attn,
        cache=workload.cache,
        head=workload.head,
        steps=[0],
    )
    found = {
        phase: predict(learned, [op for op in traced.ops if op.phase == phase], phase)
        for phase in ("prefill", "decode")
    }
    differs = [f for f in ("attn", "cache") if identity.get(f) != getattr(workload, f)]
    return {
        "run": folder,
        "model": learned.model,
        "device": learned.device,
        "differs": [f"{f} {identity.get(f)}" for f in differs],
        **{phase: _prediction(p) for phase, p in found.items()},
    }


def _run(folder: str) -> dict[str, Any]:
    run = read_json(Path(folder) / "run.json")
    if run.get("status") != "complete" or "identity" not in run:
        raise UsageError(f"{folder} holds no finished run", "Finish it: give the same command and the same --out.")
    return run


def _prediction(found: Prediction) -> dict[str, float]:
    return {
        "wall_ms": found.wall_ns / 1e6,
        "low_ms": found.wall_ns * (1 - min(found.error, 1)) / 1e6,
        "high_ms": found.wall_ns * (1 + found.error) / 1e6,
        "kernels_ms": found.kernels_ns / 1e6,
        "gaps_ms": found.gaps_ns / 1e6,
        "ideal_ms": found.ideal_ns / 1e6,
        "error_share": found.error,
        "unknown_share": found.unknown_share,
        "outside_share": found.outside_share,
    }
