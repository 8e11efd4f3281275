"""The stage that makes kernels.csv: the rows of a timeline, counted figures laid over traced ones, placed.

Any timeline (torch, nsys) goes with any counters (traced, ncu): the timeline makes the rows and their
times, the trace their FLOPs and bytes, and where ncu counted, its figures take their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.parsers.schema import KERNELS, LAUNCHES, conform
from kernelroof.profile.compiled_record import COMPILED, compile_doubts, compiled_record
from kernelroof.profile.repeats import TRACE, write_spread
from kernelroof.profile.runfolder import read_json, write_json, write_text
from kernelroof.roofline.ceilings import Ceilings, from_json, highest, to_json
from kernelroof.roofline.place import above_compute, place
from kernelroof.roofline.steady import agreed, busy_doubts, phase_doubts, roof_doubts
from kernelroof.roofline.tables import unmatched_table

if TYPE_CHECKING:
    from kernelroof.models.ops import TracedOp
    from kernelroof.parsers.nsys_sqlite import Nsys
    from kernelroof.profile.pipeline import Pipeline
    from kernelroof.roofline.match import Matched
    from kernelroof.roofline.wall import PhaseWall

SQLITE = "timeline.sqlite"
COUNTED = "counted_launches.csv"


_ROUNDS = 4
"""The roofs are measured at most so often."""


class Timeline(NamedTuple):
    """What one recording gave."""

    launches: pd.DataFrame
    """LAUNCHES"""
    rows: pd.DataFrame
    """`match_rows.COLUMNS`, `time_ns` and `idle_before_ns`"""
    unmatched: list[TracedOp]
    """traced ops not found"""
    walls: dict[str, PhaseWall]


def make_kernels(run: Pipeline) -> None:
    """Write launches.csv, kernels.csv, unmatched.csv, repeats.csv, spread.csv, wall.json and ceilings.json; where
    launches were counted also counted.csv."""
    timeline = read_timeline(run)
    run.write_csv("launches.csv", timeline.launches)
    run.write_csv("unmatched.csv", unmatched_table(timeline.unmatched))
    write_spread(run, timeline)
    counted = read_counted(run)
    rows = with_counted(timeline.rows, counted)
    rounds = [from_json(run.folder.file("roofs.json").read_text(encoding="utf-8"))]
    # A neighbour on the machine can lower a measured roof, never raise it: so it is measured before and
    # after the run, and again when the two don't agree or a kernel seems to be above it.
    while True:
        rounds.append(run.measure_roofs())
        roofs = highest([ceilings for ceilings, _ in rounds])
        placed = place(rows, roofs)
        measured = [ceilings for ceilings, _ in rounds]
        if len(rounds) == _ROUNDS or (agreed(measured) and not above_compute(placed)):
            break
    write_json(run.folder.file("wall.json"), _accounts(run, timeline.walls, rounds))
    details = {"rounds": [{**ceilings._asdict(), **details} for ceilings, details in rounds]}
    write_text(run.folder.file("ceilings.json"), to_json(roofs, details))
    run.write_csv("kernels.csv", conform(placed, KERNELS, "kernels"))
    if run.compiled:
        write_json(run.folder.file(COMPILED), compiled_record(run.compiled, placed, list(timeline.walls)))
    if counted is not None:
        run.write_csv("counted.csv", analysed(counted, read_exports(run), roofs))


def _accounts(
    run: Pipeline, walls: Mapping[str, PhaseWall], rounds: list[tuple[Ceilings, dict[str, Any]]]
) -> dict[str, Any]:
    """wall.json: each phase's account, with all that makes its figures doubtful."""
    load = run.environment["load_average"] or [None]
    busy = busy_doubts(_cpu_uses(run, [details for _, details in rounds]))
    roofs = roof_doubts([c for c, _ in rounds], None if busy else load[0], run.environment["cpu"]["usable"])
    content: dict[str, Any] = {}
    for phase, wall in walls.items():
        account = wall.to_dict()
        compiled = compile_doubts(run.compiled) if run.compiled else []
        content[phase] = {**account, "doubts": [*phase_doubts(account, run.steps(phase)), *compiled, *busy, *roofs]}
    return content


def _cpu_uses(run: Pipeline, rounds: list[dict[str, Any]]) -> dict[str, list[Mapping[str, float]]]:
    """Who used the CPU while what was measured, as far as it was watched."""
    costs = run.folder.file("costs.json")
    recorded = read_json(costs) if costs.exists() else {}
    found = {"bare passes": [run.bare], "recorded passes": [recorded], "roofs": rounds}
    return {what: [r["cpu_use"] for r in records if r.get("cpu_use")] for what, records in found.items()}


def launches_of(run: Pipeline) -> pd.DataFrame:
    """The launches of the recorded timeline."""
    if run.sources.timeline == "nsys":
        from kernelroof.parsers.nsys_sqlite import read_nsys

        return read_nsys(run.folder.file(SQLITE)).launches
    from kernelroof.parsers.kineto import launches, read_kineto

    return launches(read_kineto(run.folder.file(TRACE)))


def read_timeline(run: Pipeline) -> Timeline:
    """The recorded timeline joined with the trace and the bare run.

    Raises:
        ReportError: the recording can't be read, or it does not fit the bare run.
    """
    if run.sources.timeline == "nsys":
        from kernelroof.parsers.nsys_sqlite import read_nsys
        from kernelroof.roofline.nsys_rows import idle_of_nsys, rows_of_nsys, walls_of_nsys

        nsys = read_nsys(run.folder.file(SQLITE))
        nsys.require_ranges()
        matched = _matched_nsys(nsys, run) if run.compiled else rows_of_nsys(nsys, run.trace.ops)
        walls = walls_of_nsys(matched.rows, nsys, run.bare)
        idle = idle_of_nsys(matched.rows, nsys)
        rows = matched.rows.assign(time_ns=matched.rows["recorded_ns"], idle_before_ns=idle)
        return Timeline(nsys.launches, rows, matched.unmatched_traced, walls)
    return rows_of_trace(run, run.folder.file(TRACE))


def _matched_nsys(nsys: Nsys, run: Pipeline) -> Matched:
    """The rows of a compiled run: its kernels go by the compiled graphs, the token choice by its range."""
    from kernelroof.parsers.schema import SAMPLE_MODULE
    from kernelroof.roofline.compiled_match import match_compiled_nsys
    from kernelroof.roofline.nsys_rows import rows_of_nsys

    base = rows_of_nsys(nsys, [op for op in run.trace.ops if op.module == SAMPLE_MODULE])
    kernels = nsys.work[(nsys.work["kind"] == "kernel") & nsys.work["launch_ns"].notna()]
    launched = dict(zip(kernels["event"].tolist(), kernels["launch_ns"].tolist(), strict=True))
    return match_compiled_nsys(base, run.trace.ops, launched, run.compiled or {})


def rows_of_trace(run: Pipeline, trace: Path) -> Timeline:
    """A recording of torch.profiler joined with the trace and the bare run.

    Raises:
        ReportError: as `read_timeline`.
    """
    from kernelroof.parsers.kineto import launches, read_kineto
    from kernelroof.roofline.compiled_match import match_compiled
    from kernelroof.roofline.match import match
    from kernelroof.roofline.wall import reconcile

    kineto = read_kineto(trace)
    matched = match_compiled(kineto, run.trace.ops, run.compiled) if run.compiled else match(kineto, run.trace.ops)
    rows, walls = reconcile(matched.rows, kineto, run.bare, read_json(run.folder.file("costs.json")))
    return Timeline(launches(kineto), rows, matched.unmatched_traced, walls)


def with_counted(rows: pd.DataFrame, counted: pd.DataFrame | None) -> pd.DataFrame:
    """Lay counted figures over traced ones, by event; what was not counted keeps what it had.

    Args:
        rows: with `event`, `kernel` and the figures of KERNELS.
        counted: launches with their figures and `counted_as` (see `counters_stage`); None: nothing counted.
    """
    if counted is None:
        plain: pd.DataFrame = rows.assign(dram_pct=None, sm_pct=None)
        return plain
    names = ["flops", "dram_read_bytes", "dram_write_bytes", "dram_pct", "sm_pct", "waves_per_sm"]
    more = ["counted_as", "why", "caveat", "reasons", "flops_upper_bound"]
    found = rows[["event"]].merge(
        counted.drop_duplicates("event")[["event", *names, *more]], on="event", how="left", validate="m:1"
    )
    found.index = rows.index
    out: pd.DataFrame = rows.copy()
    for name, source in (("flops", "flops_source"), ("dram_read_bytes", "bytes_source")):
        has = found[name].notna() & (found["dram_write_bytes"].notna() if name != "flops" else True)
        columns = [name] if name == "flops" else [name, "dram_write_bytes"]
        for column in columns:
            out[column] = rows[column].where(~has, found[column].astype("Int64"))
        out[source] = rows[source].astype("string").where(~has, "ncu")
    for name in ("dram_pct", "sm_pct", "waves_per_sm"):
        out[name] = found[name].astype("float64")
    out["reason"] = [
        _reason(*values)
        for values in zip(
            rows["reason"].tolist(), out["flops"].isna() | out["dram_read_bytes"].isna(), found["counted_as"].tolist(),
            found["flops"].isna().tolist(), found["why"].tolist(), found["caveat"].tolist(),
            found["flops_upper_bound"].fillna(False).tolist(), strict=True,
        )
    ]  # fmt: skip
    out["reason"] = out["reason"].astype("string")
    return out


def _reason(had: Any, lacks: bool, how: Any, silent: bool, why: Any, caveat: Any, upper_bound: bool) -> str | None:
    """What a row's reason is once counters were looked at: the old one only where figures still lack."""
    parts = [str(had)] if lacks and not pd.isna(had) else []
    if pd.isna(how):
        parts += [f"not counted: {why}"] if not pd.isna(why) else []
    else:
        if str(how) != "counted":
            parts.append(f"FLOPs and bytes {how} from counted launches of its class")
        if silent and not lacks:
            parts.append("FLOPs are traced: the counter does not tell them")
        if upper_bound:
            parts.append("FLOPs hold packed half instructions: at most so many")
        parts += [str(caveat)] if not pd.isna(caveat) else []
    return "; ".join(parts) or None


def read_counted(run: Pipeline) -> pd.DataFrame | None:
    """The counted launches of a run; None where nothing was counted."""
    from kernelroof.profile.counters_stage import DTYPES

    if run.sources.counters != "ncu" or run.counters.get("status") != "counted":
        return None
    types = {c.name: "string" if c.dtype == "str" else c.dtype for c in LAUNCHES}
    return pd.read_csv(run.folder.file(COUNTED), dtype={**types, **DTYPES, "counted_as": "string", "why": "string"})


def read_exports(run: Pipeline) -> pd.DataFrame:
    """The counters of all counting runs of a run, one below the other."""
    from kernelroof.parsers.ncu import read_ncu

    tables = [read_ncu(run.folder.file(name), own_run=True).counters for name in run.counters["exports"]]
    together: pd.DataFrame = pd.concat(tables, ignore_index=True)
    return together


def analysed(counted: pd.DataFrame, counters: pd.DataFrame, ceilings: Ceilings) -> pd.DataFrame:
    """counted.csv: every launch with counted figures, judged on both clocks: inside ncu, and on the timeline.

    Args:
        counted: all launches with what was counted or spread to them.
        counters: as exported, for the report's own ceilings.
        ceilings: the roofs of the timeline's clock, as measured for one type; peaks of other types are the
            GPU's datasheet's. Those inside ncu are the report's own.
    """
    from kernelroof.models.kinds import kind_of
    from kernelroof.roofline.counted import Roofs, place_counted
    from kernelroof.roofline.gpus import known_gpu
    from kernelroof.roofline.place import numbers, ratio
    from kernelroof.roofline.report_ceilings import read_ceilings, sheet_ceilings

    rows = counted[counted["counted_as"].notna()].reset_index(drop=True)
    rows = rows.assign(
        count=pd.array(np.ones(len(rows), np.int64), dtype="Int64"),
        timeline_ns=rows["time_ns"],
        joined=rows["counted_as"],
        kind=[kind_of(str(m)) for m in rows["module"]],
    )
    rows["duration_ratio"] = ratio(numbers(rows["ncu_time_ns"]), numbers(rows["timeline_ns"]))
    return place_counted(rows, Roofs(read_ceilings(counters), sheet_ceilings(known_gpu(ceilings.name), ceilings)))
