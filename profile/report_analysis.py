"""report.html of an analysis: files recorded elsewhere, on each clock that they have."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from kernelroof.parsers.schema import UNATTRIBUTED
from kernelroof.profile.runfolder import RunFolder, write_text
from kernelroof.roofline.kernel_groups import kernels_of, on_clock
from kernelroof.roofline.place import aggregate, numbers, ratio
from kernelroof.roofline.report_ceilings import find_type
from kernelroof.roofline.summary import role_of
from kernelroof.roofline.units import counted, plain_type, seconds

if TYPE_CHECKING:
    from kernelroof.profile.analyze_command import Analysis
    from kernelroof.profile.analyze_inputs import Inputs
    from kernelroof.roofline.report_ceilings import ReportCeilings
    from kernelroof.roofline.report_data import PageInput, PhaseInput

REPORT = "report.html"
_CLOCKS = {"ncu": "inside ncu", "timeline": "on the timeline"}


def write_report(analysis: Analysis, inputs: Inputs, folder: RunFolder, pictures: dict[str, str]) -> bool:
    """Render the page of an analysis into its folder; False where there are no kernels with a duration to show."""
    from kernelroof.roofline.html import page
    from kernelroof.roofline.report_data import report_data

    phases = list(_phases(analysis, inputs))
    if not phases:
        return False
    data = report_data(_page(analysis, inputs, phases, pictures), phases)
    write_text(folder.file(REPORT), page("report", data, title=data["title"]))
    return True


def _phases(analysis: Analysis, inputs: Inputs) -> Iterator[PhaseInput]:
    if analysis.table is None:
        return
    for clock, words in _CLOCKS.items():
        rows = on_clock(analysis.table, clock)
        for phase in dict.fromkeys(rows["phase"]):
            yield _phase(analysis, inputs, rows[rows["phase"] == phase], str(phase), clock, words)


def _phase(analysis: Analysis, inputs: Inputs, rows: pd.DataFrame, phase: str, clock: str, words: str) -> PhaseInput:
    from kernelroof.roofline.report_data import PhaseInput

    original = rows.reset_index(drop=True)
    rows = _named(original)
    steps = max(1, int(rows["step"].nunique())) if phase != UNATTRIBUTED else 1
    kernels = _kernels(original, rows)
    roofs = getattr(analysis.roofs, clock)
    several = analysis.table is not None and analysis.table["phase"].nunique() > 1
    name = f"{phase}, {words}" if several or phase != UNATTRIBUTED else f"all kernels, {words}"
    kernel_ns = float((numbers(rows["time_ns"]) * numbers(rows["count"])).sum())
    recoverable = numbers(rows["recoverable_ns"])
    worst = kernels.dropna(subset="recoverable_ns").sort_values("recoverable_ns", ascending=False).head(1)
    verdict = f"{name}: {counted(int(rows['count'].sum()), 'launch')} of {counted(len(kernels), 'kernel')}"
    verdict += f", {seconds(kernel_ns / 1e9, 3)}"
    answers = _answers(rows, kernels, worst, kernel_ns)
    estimate = (analysis.estimate or {}).get(phase)
    timeline = _timeline(inputs, original, phase) if clock == "timeline" else None
    return PhaseInput(
        name=name,
        key=phase,
        steps=steps,
        clock=words,
        kernels=kernels,
        modules=_modules(rows, kernel_ns),
        rows=rows,
        kernel_ns=kernel_ns,
        recoverable_ns=None if np.isnan(recoverable).all() else float(np.nansum(recoverable)),
        verdict=verdict,
        answers=answers,
        model=(estimate["flops"] * steps, estimate["bytes"] * steps) if estimate else None,
        timeline=timeline,
        roofs=_roofs(roofs, rows) if roofs is not None else None,
    )


def _named(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows whose kernel name holds the grid: launches of one kernel with other grids are other roles."""
    roles = {m: role_of(str(m)) for m in rows["module"].unique()}
    named: pd.DataFrame = rows.assign(
        role=rows["module"].map(roles).astype("string"),
        kernel=_with_grid(rows),
        op=pd.array([pd.NA] * len(rows), dtype="string"),
    )
    return named


def _kernels(rows: pd.DataFrame, named: pd.DataFrame) -> pd.DataFrame:
    """The kernel roles of `named` (of `rows`) with all that the page shows of them."""
    from kernelroof.roofline.report_tables import with_facts

    table = kernels_of(rows).drop(columns=["op", "dram_pct", "sm_pct"])
    table = table.assign(
        kernel=_with_grid(table), advice=table["verdict"], op=pd.array([pd.NA] * len(table), dtype="string")
    )
    kinds = named.groupby(["role", "kernel"], sort=False, dropna=False)["kind"].first().reset_index()
    return with_facts(table.merge(kinds, on=["role", "kernel"], how="left", sort=False, validate="1:1"), named)


def _with_grid(table: pd.DataFrame) -> pd.Series[str]:
    grid = table["grid"].astype("string")
    out: pd.Series[str] = table["kernel"].astype("string") + (" [" + grid + "]").fillna("")
    return out


def _modules(rows: pd.DataFrame, kernel_ns: float) -> pd.DataFrame:
    table = aggregate(rows, ["role", "kind"])
    table["share_pct"] = ratio(100 * numbers(table["time_ns"]), np.full(len(table), kernel_ns))
    ordered: pd.DataFrame = table.sort_values("time_ns", ascending=False, kind="stable").reset_index(drop=True)
    return ordered


def _answers(rows: pd.DataFrame, kernels: pd.DataFrame, worst: pd.DataFrame, kernel_ns: float) -> list[tuple[str, str]]:
    time = pd.Series(numbers(rows["time_ns"]) * numbers(rows["count"]))
    bounds = time.groupby(rows["bound"].astype("string").to_numpy()).sum().sort_values(ascending=False)
    shares = ", ".join(f"{bound} {100 * ns / kernel_ns:.0f} %" for bound, ns in bounds.items()) if kernel_ns else "–"
    answers = [("What bounds the kernels?", f"by time: {shares}")]
    if len(worst):
        row = worst.iloc[0]
        took = seconds(float(row["recoverable_ns"]) / 1e9, 3)
        of = seconds(float(row["time_ns"]) / 1e9, 3)
        answers.append(("Which kernel wastes most?", f"{row['label']}: {took} recoverable of {of}"))
        answers.append(("What to do?", str(row["verdict"])))
    else:
        most = kernels.iloc[0]
        answers.append(("Which kernel takes most?", f"{most['label']}: {seconds(float(most['time_ns']) / 1e9, 3)}"))
        answers.append(("What to do?", str(most["verdict"])))
    return answers


def _roofs(found: ReportCeilings, rows: pd.DataFrame) -> dict[str, Any] | None:
    from kernelroof.profile.analyze_output import types_of

    if not found.memory and not found.compute:
        return None
    wanted = [find_type(t, found.compute) for t in (found.headline, *types_of(rows)) if t]
    names = list(dict.fromkeys(t for t in wanted if t))
    dram = found.memory.get("DRAM")
    origins = [
        *([f"DRAM {dram.source}"] if dram else []),
        *(f"{plain_type(n)} {found.compute[n].source}" for n in names),
    ]
    return {
        "name": found.gpu,
        "dtype": plain_type(names[0]) if names else None,
        "origin": found.compute[names[0]].origin if names else None,
        "note": "; ".join([*origins, *found.notes]),
        "memory": [{"name": "DRAM", "byte_s": dram.rate}] if dram else [],
        "compute": [{"name": plain_type(n), "flop_s": found.compute[n].rate} for n in names],
    }


def _timeline(inputs: Inputs, rows: pd.DataFrame, phase: str) -> dict[str, Any] | None:
    from kernelroof.roofline.step_timeline import step_timeline

    found = [step_timeline(t.launches, rows, phase) for t in inputs.timelines]
    return next((f for f in found if f is not None), None)


def _page(analysis: Analysis, inputs: Inputs, phases: list[PhaseInput], pictures: dict[str, str]) -> PageInput:
    from kernelroof.roofline.card import estimate_card
    from kernelroof.roofline.report_data import PageInput

    gpus = [r.gpu for r in (analysis.roofs.ncu, analysis.roofs.timeline) if r is not None and r.gpu]
    names = ", ".join(p.name for p in inputs.paths[:3])
    more = f" and {len(inputs.paths) - 3} more" if len(inputs.paths) > 3 else ""
    table = analysis.table
    missing: list[tuple[str, str, str]] = []
    if table is not None:
        unknown = table[table["flops"].isna() | table["intensity"].isna()]
        for reason, rows in unknown.groupby(unknown["reason"].fillna("not in the files"), sort=False):
            missing.append((f"FLOPs or bytes of {counted(int(rows['count'].sum()), 'launch')}", str(reason), ""))
    if analysis.estimate is None:
        missing.append(("the model's estimate", "no model was named", "analyze with --model"))
    missing.append(("the waterfall", "it needs a bare run beside the recording", "kernelroof profile records both"))
    return PageInput(
        title=f"{names}{more}" + (f" on {gpus[0]}" if gpus else ""),
        made_by=f"kernelroof {version('kernelroof')}",
        source="analyze",
        subject=[("files", names + more), ("GPU", gpus[0] if gpus else "not named in the files")],
        doubts=list(analysis.notes),
        roofs=None,
        parts=None,
        siblings=[],
        estimate=estimate_card(analysis.estimate) if analysis.estimate else None,
        environment=[],
        commands=[("this analysis", shlex.join(sys.argv))],
        conventions=[
            "shares of a roof stay inside one clock: wholly in ncu, or wholly on the timeline",
            "FMA = 2 FLOP; GB = 10^9 B; peaks are dense",
            "recoverable = (time - time at the roof) x launches; share = part of the kernels' time",
        ],
        missing=missing,
        files=[
            ("kernels.csv", "every launch on each clock, with a verdict"),
            *((p, "picture") for p in pictures.values()),
        ],
    )
