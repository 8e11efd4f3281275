"""`estimate --calibrate RUN`: the factors of a finished run applied to another workload or model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from kernelroof.models.errors import OutputError, UsageError
from kernelroof.models.fields import shortened
from kernelroof.models.workload import Workload
from kernelroof.profile.run_checks import WholeFiles
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
    files = WholeFiles(Path(folder), identity)
    for name in ("kernels.csv", "ceilings.json", "wall.json"):
        files.read(name)
    kernels = _kernels(Path(folder) / "kernels.csv")
    ceilings, wall = _read(folder, "ceilings.json"), _read(folder, "wall.json")
    _check_positive(ceilings, f"{folder}/ceilings.json", ("flop_s", "byte_s"))
    for phase in kernels["phase"].unique():
        _check_positive(wall.get(phase), f"{phase} of {folder}/wall.json", ("bare_ns", "bare_min_ns", "bare_max_ns"))
    if not isinstance(ceilings.get("name"), str):
        raise OutputError(f"{folder}/ceilings.json has no name", _ANOTHER)
    learned = calibration(identity, ceilings, wall, kernels)
    # Loads torch, which takes seconds: what can be refused is refused before.
    from kernelroof.models.trace import trace

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
    differs = [f for f in ("attn", "cache", "batch") if identity.get(f) != getattr(workload, f)]
    return {
        "run": folder,
        "model": learned.model,
        "device": learned.device,
        "differs": [f"{f} {identity.get(f)}" for f in differs],
        **{phase: _prediction(p) for phase, p in found.items()},
    }


def _run(folder: str) -> dict[str, Any]:
    if not (Path(folder) / "run.json").is_file():
        raise UsageError(f"{folder} holds no run", "Give a folder that `kernelroof profile` wrote.")
    run = _read(folder, "run.json")
    identity = run.get("identity")
    if run.get("status") != "complete" or not isinstance(identity, dict):
        raise UsageError(f"{folder} holds no finished run", "Finish it: give the same command and the same --out.")
    lacking = [field for field in ("dtype", "model") if not isinstance(identity.get(field), str)]
    if lacking:
        raise OutputError(f"{folder}/run.json has no {lacking[0]} in its identity", _ANOTHER)
    return run


_ANOTHER = "Give the folder of a finished run of `kernelroof profile`."


def _read(folder: str, name: str) -> dict[str, Any]:
    try:
        return read_json(Path(folder) / name)
    except OutputError as error:
        raise OutputError(error.what, _ANOTHER) from error


def _check_positive(record: object, where: str, fields: Iterable[str]) -> None:
    for field in fields:
        value = record.get(field) if isinstance(record, dict) else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise OutputError(f"{where} has {shortened(value)} for {field}", _ANOTHER)


_TEXTS = ("phase", "module", "kind", "kernel")
_FIGURES = ("time_ns", "ideal_ns", "flops", "count")


def _kernels(path: Path) -> pd.DataFrame:
    """The run's kernels.csv, checked: its columns are there, and what is known in them is no nonsense."""
    try:
        if not path.read_bytes().endswith(b"\n"):
            raise OutputError(f"{path} is cut short", _ANOTHER)
        kernels = pd.read_csv(path, dtype=dict.fromkeys(_TEXTS, str), keep_default_na=False, na_values=[""])
        lacking = [column for column in (*_TEXTS, *_FIGURES) if column not in kernels.columns]
        if lacking:
            raise OutputError(f"{path} has no column {', '.join(lacking)}", _ANOTHER)
        figures = kernels[list(_FIGURES)].apply(pd.to_numeric)
    except (OSError, ValueError, TypeError) as error:  # pandas' own errors are ValueErrors
        raise OutputError(f"{path} can't be read ({' '.join(str(error).split())})", _ANOTHER) from error
    odd = (figures < 0) | np.isinf(figures.astype(float))
    odd["count"] |= ~(figures["count"] >= 1)
    odd["time_ns"] |= kernels["phase"].isna()
    if odd.any(axis=None):
        row = int(odd.any(axis=1).to_numpy().argmax())
        raise OutputError(f"{path} makes no sense in line {row + 2}, or is cut short there", _ANOTHER)
    kernels[list(_FIGURES)] = figures
    return kernels


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
