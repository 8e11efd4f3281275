"""One way down from a phase to a kernel, as records: what it should take, what it takes, what could be recovered.

All times are ns of one step, on the bare run's clock, and equal to the tables' of the run divided by its steps. The
number of a kernel is its place, from 1, in the phase's kernel table: most recoverable first.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.models.errors import UsageError
from kernelroof.models.fields import shortened
from kernelroof.roofline.place import aggregate, numbers
from kernelroof.roofline.siblings import odd_layers
from kernelroof.roofline.spread import KERNEL
from kernelroof.roofline.summary import PhaseSummary, role_of, with_roles
from kernelroof.roofline.waterfall import TERMS, idle_of, layer_of

COUNTERS = {
    "dram_pct": "DRAM, % of peak",
    "sm_pct": "SM, % of peak",
    "tensor_pct": "tensor pipe, % of cycles",
    "occupancy_pct": "occupancy, %",
    "waves_per_sm": "waves per SM",
    "registers": "registers of a thread",
}
"""Columns of a counted table that are shown of a kernel, and their words."""
_SLOWEST = 5


class PhaseView(NamedTuple):
    """All that is known of one phase of a run."""

    name: str
    steps: int
    summary: PhaseSummary
    modules: pd.DataFrame
    """of `summary.module_table`"""
    kinds: pd.DataFrame
    """of `summary.kind_table`"""
    kernels: pd.DataFrame
    """of `summary.kernel_table`, with `advice` and the columns of `spread`"""
    rows: pd.DataFrame
    """kernels.csv of the phase"""
    parts: pd.DataFrame
    """waterfall.csv of the phase"""
    answers: Sequence[tuple[str, str]]
    counted: pd.DataFrame | None
    """counted.csv of the phase"""
    repeats: pd.DataFrame | None = None
    """repeats.csv of the phase"""
    doubts: Sequence[str] = ()
    """why its figures may not be trusted"""


def overview(view: PhaseView) -> dict[str, Any]:
    """A phase: the model's ideal and the wall time, its kinds of work, modules, kernels, and layers that are odd."""
    own = view.summary
    return {
        "phase": view.name,
        "steps": view.steps,
        "ideal_ns": _each(own.model_ns, view),
        "wall_ns": _each(own.wall_ns, view),
        "kernel_ns": _each(own.kernel_ns, view),
        "recoverable_ns": _each(own.recoverable_ns, view),
        "doubts": list(view.doubts),
        "answers": [{"question": q, "answer": a} for q, a in view.answers],
        "terms_ns": {t: int(ns) / view.steps for t, ns in _terms(view.parts[view.parts["scope"] == "phase"]).items()},
        "kinds": [{"kind": str(r["kind"]), **_times(r, view)} for r in _records(view.kinds)],
        "modules": [{"module": str(r["role"]), **_times(r, view)} for r in _records(view.modules)],
        "kernels": kernel_list(view),
        "odd_layers": _odd(view.rows),
    }


def kernel_list(view: PhaseView, rows: pd.DataFrame | None = None) -> list[dict[str, Any]]:
    """The kernels of a phase, or their part in some of its rows, with their numbers; most recoverable first."""
    numbered = view.kernels.assign(number=range(1, len(view.kernels) + 1))
    if rows is not None:
        keys = list(KERNEL)
        own = aggregate(with_roles(rows), keys).astype(dict.fromkeys(keys, "string"))
        known = numbered[[*keys, "label", "number", "advice"]].astype(dict.fromkeys(keys, "string"))
        numbered = own.merge(known, on=keys, how="left", validate="1:1")
        order = ["recoverable_ns", "time_ns"]
        numbered = numbered.sort_values(order, ascending=False, na_position="last", kind="stable")
    return [
        {"number": int(r["number"]), "kernel": str(r["label"]), "module": str(r["role"]), **_times(r, view)}
        for r in _records(numbered)
    ]


def module_view(view: PhaseView, name: str) -> dict[str, Any]:
    """A module, a layer or a group of them: its terms, its kernels, its layers side by side.

    Args:
        name: pieces of a path that follow one another, with all that is inside: "mlp", "mlp.up_proj", "layers.1",
            "model.layers.*.mlp".

    Raises:
        UsageError: nothing in the phase has such a path.
    """
    wanted = np.array([matches(str(m), name) for m in view.rows["module"]], dtype=bool)
    rows = with_roles(view.rows[wanted])
    if rows.empty:
        near = ", ".join(_near(name, [str(m) for m in view.rows["module"].unique()]))
        raise UsageError(f"no module {shortened(name)} ran in {view.name}", f"Such as: {near}.")
    layers = view.parts[(view.parts["scope"] == "layer").to_numpy(bool)]
    layer = layers[[matches(str(n), name) for n in layers["name"]]]
    # A name that means one layer and nothing beside it is that layer: its own row holds its ideal as one piece.
    if len(layer) != 1 or {layer_of(str(m)) for m in rows["module"]} != {str(layer["name"].iloc[0])}:
        layer = layer[:0]
    inside = np.array([matches(str(m), name) for m in view.parts["name"]], dtype=bool)
    single = view.parts[(view.parts["scope"] == "module").to_numpy(bool) & inside]
    found = _terms(layer if len(layer) else single)
    times = numbers(rows["time_ns"]) * numbers(rows["count"])
    return {
        "phase": view.name,
        "steps": view.steps,
        "module": name,
        "doubts": list(view.doubts),
        "layer": str(layer["name"].iloc[0]) if len(layer) else None,
        "paths": [str(m) for m in dict.fromkeys(rows["module"])],
        "ideal_ns": _each(_sum(rows["ideal_ns"], rows["count"]), view),
        "time_ns": _each(float(times.sum()), view),
        "recoverable_ns": _each(_sum(rows["recoverable_ns"]), view),
        "idle_ns": _each(idle_of(rows), view),
        "without_figures": int(rows["ideal_ns"].isna().sum()),
        "terms_ns": {t: int(ns) / view.steps for t, ns in found.items()},
        "layers": _layers(rows),
        "odd_layers": _odd(rows),
        "kernels": kernel_list(view, rows),
    }


def matches(module: str, name: str) -> bool:
    """Whether a module's path holds the pieces of a name one after the other; * stands for any piece."""
    path, wanted = module.split("."), name.split(".")
    ends = range(len(path) - len(wanted) + 1)
    return any(all(fnmatchcase(p, w) for p, w in zip(path[i:], wanted, strict=False)) for i in ends)


def _near(name: str, paths: Sequence[str]) -> list[str]:
    """Names that can be given instead of one that means nothing."""
    inside = [p.split(".") for p in paths if not p.startswith("(")]
    layers = [".".join(p[i - 1 : i + 1]) for p in inside for i in range(1, len(p)) if p[i].isdigit()]
    words = [piece for p in inside for piece in p if not piece.isdigit()]
    wild = [role_of(".".join(p)).split(".") for p in inside]
    tails = [".".join(p[i:]) for p in wild for i in range(len(p))]
    found = difflib.get_close_matches(name, dict.fromkeys([*words, *layers, *tails]), n=3, cutoff=0.5)
    inner = Counter(p[i + 1] for p in wild for i in range(len(p) - 1) if p[i] == "*")
    return found or [*(word for word, _ in inner.most_common(3)), *dict.fromkeys(layers)][:5] or [*paths[:5]]


def kernel_view(view: PhaseView, number: int) -> dict[str, Any]:
    """A kernel: its figures, its launches, its counters, its spread, and what to do.

    Raises:
        UsageError: the phase has no kernel of that number.
    """
    if not 1 <= number <= len(view.kernels):
        raise UsageError(f"{view.name} has no kernel {number}", f"It has 1 to {len(view.kernels)}.")
    row = _records(view.kernels.iloc[number - 1 : number])[0]
    launches = _rows_of(view.rows, row)
    slow = launches.assign(_ns=numbers(launches["time_ns"])).sort_values("_ns", ascending=False, kind="stable")
    spread = ("samples", "recordings", "step_median_ns", "step_low_ns", "step_high_ns", "growth_pct", "noise_pct")
    return {
        "phase": view.name,
        "steps": view.steps,
        "doubts": list(view.doubts),
        "number": number,
        "kernel": str(row["label"]),
        "module": str(row["role"]),
        "full_name": str(row["kernel"]),
        "op": str(row["op"]),
        **_times(row, view),
        "launches": float(row["launches"]) / view.steps,
        "flops": _each(row["flops"], view),
        "bytes": _each(row["bytes"], view),
        **{name: _real(row[name]) for name in ("intensity", "attained_flop_s", "attained_byte_s", "share_pct")},
        "reason": None if pd.isna(row["reason"]) else str(row["reason"]),
        "sources": {
            name: sorted({str(v) for v in launches[name].dropna()})
            for name in ("time_source", "flops_source", "bytes_source")
        },
        "shapes": _common(launches["shapes"]),
        "dtype": _common(launches["dtype"]),
        "spread": {name: _real(row.get(name)) for name in spread},
        "launch_ns": _quartiles(launches),
        "recordings_ns": _recordings(view, row),
        "slowest": [
            {"module": str(r["module"]), "step": _real(r["step"]), "time_ns": float(r["_ns"])}
            for r in _records(slow.head(_SLOWEST))
        ],
        "layers": _layers(launches),
        "odd_layers": _odd(launches),
        "counters": None if view.counted is None else _counters(_rows_of(view.counted, row)),
        "advice": str(row["advice"]),
    }


def _rows_of(rows: pd.DataFrame, role: Mapping[str, Any]) -> pd.DataFrame:
    found = rows if "recording" in rows else with_roles(rows)
    keep = np.ones(len(found), dtype=bool)
    for name in KERNEL:
        keep &= (found[name].astype("string") == str(role[name])).fillna(False).to_numpy(bool)
    out: pd.DataFrame = found[keep]
    return out


def _recordings(view: PhaseView, row: Mapping[str, Any]) -> list[float]:
    """A kernel's mean time of a step in each recording, that which is shown first."""
    if view.repeats is None or view.repeats.empty:
        return []
    own = _rows_of(view.repeats, row)
    time_ns = own["time_ns"] * own["pace"]
    sums = time_ns.groupby(own["recording"]).sum().sort_index()
    return [float(ns) / view.steps for ns in sums]


def _counters(rows: pd.DataFrame) -> dict[str, Any] | None:
    """Means over the counted launches, and how many there are; None where none was counted."""
    if rows.empty:
        return None
    means: dict[str, Any] = {n: _real(rows[n].mean()) for n in COUNTERS if n in rows}
    return {"launches": len(rows), **means}


def _layers(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Each layer's median time in one step."""
    work = rows[rows["step"].notna()]
    work = work.assign(
        layer=work["module"].astype(str).map(layer_of), ns=numbers(work["time_ns"]) * numbers(work["count"])
    )
    steps = work[work["layer"] != ""].groupby(["layer", "step"], sort=False)["ns"].sum()
    return [
        {"layer": str(n), "time_ns": float(v)} for n, v in steps.groupby(level="layer", sort=False).median().items()
    ]


def _odd(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return _records(odd_layers(rows)[["layer", "words", "excess_pct"]])


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]


def _terms(parts: pd.DataFrame) -> dict[str, int]:
    return {term: int(parts[term].sum()) for term in TERMS}


def _times(row: Mapping[str, Any], view: PhaseView) -> dict[str, Any]:
    found: dict[str, Any] = {n: _each(row[n], view) for n in ("ideal_ns", "time_ns", "recoverable_ns")}
    if "bound" in row:
        found |= {"bound": str(row["bound"]), "pct_of_roof": _real(row["pct_of_roof"])}
    if "advice" in row:
        found["advice"] = str(row["advice"])
    return found


def _each(value: Any, view: PhaseView) -> float | None:
    real = _real(value)
    return None if real is None else real / view.steps


def _real(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def _sum(values: pd.Series[float], count: pd.Series[float] | None = None) -> float | None:
    known = numbers(values) * (1 if count is None else numbers(count))
    known = known[~np.isnan(known)]
    return float(known.sum()) if len(known) else None


def _quartiles(rows: pd.DataFrame) -> dict[str, float] | None:
    times = numbers(rows["time_ns"])
    times = times[~np.isnan(times)]
    if not len(times):
        return None
    names = ("min", "low", "median", "high", "max")
    return {n: float(v) for n, v in zip(names, np.quantile(times, [0, 0.25, 0.5, 0.75, 1]), strict=True)}


def _common(values: pd.Series[str]) -> str | None:
    """The value that most rows have."""
    counts = values.dropna().value_counts()
    return str(counts.index[0]) if len(counts) else None
