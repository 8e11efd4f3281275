"""The stage that turns a timeline's launches into counted figures for all of them.

Classes, a few members of each counted, sequences compared, figures joined and spread; what was left out,
and why, travels with the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from kernelroof.models.errors import ReportError, UsageError
from kernelroof.parsers.ncu_errors import NoMetricsError
from kernelroof.profile.count_options import CountOptions
from kernelroof.profile.kernels_stage import COUNTED, launches_of
from kernelroof.profile.nsight_backend import TRAFFIC_COLUMNS, Counter
from kernelroof.profile.representatives import UNPLACED, classify, count_classes, in_windows, windows_of
from kernelroof.profile.runfolder import write_json
from kernelroof.profile.sequences import pair
from kernelroof.profile.spreading import Spread, spread
from kernelroof.profile.tool_errors import ToolError
from kernelroof.profile.window import Window
from kernelroof.roofline.join import TAKEN, duration_doubts, join
from kernelroof.roofline.report_ceilings import peaks_at

if TYPE_CHECKING:
    from kernelroof.models.ops import TracedOp
    from kernelroof.profile.pipeline import Pipeline
    from kernelroof.profile.representatives import Mask

RECORD = "counters.json"
FIGURES = (*TAKEN, "ncu_time_ns", "caveat")
NOT_TOP = "not among the kernels with most time that --top asks for"
_TEXTS = ("flops_by_type", "sources", "reasons", "caveat", "peak_flop_s", "cc")
_WHOLE = (
    *("flops", "dram_read_bytes", "dram_write_bytes", "dram_bytes", "l2_bytes", "l1_bytes"),
    *("registers", "passes", "ncu_time_ns"),
)
DTYPES = {
    **dict.fromkeys(FIGURES, "Float64"),
    **dict.fromkeys(_TEXTS, "string"),
    **dict.fromkeys(_WHOLE, "Int64"),
    "flops_upper_bound": "boolean",
}
_COLLECTED = tuple(name for name, dtype in DTYPES.items() if dtype in ("Float64", "Int64") and name != "passes")
"""What ncu was asked for; passes are told by its log even where nothing came back."""


def count_run(run: Pipeline) -> None:
    """Count the launches of a run's timeline; writes counters.json, and counted_launches.csv.

    Where the run may fall back, a refusal (no permission, an ncu that does not know the GPU, ...) ends in
    traced figures and a line that says so; else it is the run's error.
    """
    if run.job.gpu is None:
        raise UsageError("counters were asked for without a GPU", "Use --counters traced.")
    try:
        counter = Counter(run.folder.path, run.spec_file, run.job.gpu, run.job.counting)
        launches = in_launch_order(launches_of(run))
        counted = count_launches(launches, counter, run.job.counting, growing_modules(run.trace.ops))
    except (ReportError, ToolError) as error:
        if not run.sources.may_fall_back:
            raise
        print(f"\n  {error.what}: falling back to traced FLOPs and bytes", file=sys.stderr)
        write_json(run.folder.file(RECORD), {"status": "refused", "why": error.what, "hint": error.hint})
        return
    run.write_csv(COUNTED, counted.table)
    write_json(run.folder.file(RECORD), counted.record)


class CountedTable(NamedTuple):
    """`table`: the launches with FIGURES, `counted_as` and `why`. `record`: content of counters.json."""

    table: pd.DataFrame
    record: dict[str, Any]


def in_launch_order(launches: pd.DataFrame) -> pd.DataFrame:
    """The kernels of a timeline (no copies: ncu counts none) in the order in which they were launched."""
    kernels = launches[launches["grid"].notna()]
    order = kernels["launch_ns"].fillna(kernels["start_ns"])
    ordered = kernels.assign(_order=order).sort_values(["_order", "start_ns"], kind="stable")
    out: pd.DataFrame = ordered.drop(columns="_order").reset_index(drop=True)
    return out


def growing_modules(ops: Iterable[TracedOp]) -> set[str]:
    """The modules whose decode traffic changes from step to step."""
    by_step: dict[tuple[str, int], int] = {}
    for op in ops:
        if op.phase == "decode":
            key = (op.module, op.step)
            by_step[key] = by_step.get(key, 0) + op.read_bytes + op.write_bytes
    seen: dict[str, set[int]] = {}
    for (module, _), moved in by_step.items():
        seen.setdefault(module, set()).add(moved)
    return {module for module, amounts in seen.items() if len(amounts) > 1}


def count_launches(
    launches: pd.DataFrame, counter: Counter, options: CountOptions, growing: set[str] | None = None
) -> CountedTable:
    """Count representatives of `launches` (or every one) and spread what was counted.

    Args:
        launches: LAUNCHES, see `in_launch_order`.
        growing: modules whose bytes depend on the context (`growing_modules`); None: told by their names.

    Raises:
        NcuError, ToolError: see `Counter.count`.
        ReportError: nothing that was counted could be joined, or nothing was collected.
    """
    table = launches
    if growing is not None:
        grows = launches["module"].isin(growing) & (launches["phase"] == "decode")
        table = launches.assign(varies=grows.fillna(False))
    classified = _only_top(classify(table), options.top)
    unjoined: list[str] = []

    def count(windows: list[Window], rows: Mask) -> pd.DataFrame:
        wanted = launches[rows]
        print(f"\n  {len(wanted):,} launches in {len(windows):,} module calls ...", end="", file=sys.stderr, flush=True)
        found = [_joined(wanted, counters, unjoined) for counters in counter.count(windows).values()]
        return merge_runs(found)

    if options.every_kernel:
        windows = windows_of(classified, (classified["never"] != UNPLACED).fillna(True).to_numpy(bool))
        figures = count(windows, in_windows(classified, windows))
        said: list[str] = []
    else:
        classified, figures, said = count_classes(classified, count)
    if figures.empty:
        reasons = f" ({unjoined[0]})" if unjoined else ""
        raise ReportError(
            f"nothing that was counted could be joined with the timeline{reasons}",
            "Run both again; if the program is not the same each time, use --counters traced.",
        )
    if figures[list(_COLLECTED)].isna().all(axis=None):
        raise NoMetricsError(
            f"ncu profiled {len(figures):,} launches and collected nothing of what was asked for",
            "Count with --ncu-set full, or use --counters traced; counters-*.ncu.log say more.",
        )
    result = spread(classified, figures)
    doubts = duration_doubts(result.figures["ncu_time_ns"], launches["time_ns"])
    counted = pd.concat([launches, result.figures.assign(caveat=doubts)], axis=1)
    lacking = {k: v for p in counter.purposes for k, v in p.lacking.items()}
    return CountedTable(counted, _record(result, counter, said, unjoined, lacking))


def merge_runs(runs: list[pd.DataFrame]) -> pd.DataFrame:
    """One row a launch from the runs that counted it: traffic (and time) from the first, work from the last."""
    if len(runs) == 1:
        return runs[0]
    traffic, work = runs[0], runs[-1]
    index = traffic.index.union(work.index)
    traffic, work = traffic.reindex(index), work.reindex(index)
    work = peaks_at(work, traffic["sm_clock_hz"])
    columns = {}
    for name in FIGURES:
        first, second = (traffic[name], work[name]) if name in TRAFFIC_COLUMNS else (work[name], traffic[name])
        columns[name] = first.where(first.notna(), second)
    merged: pd.DataFrame = pd.DataFrame(columns, index=index)
    return merged


def _joined(wanted: pd.DataFrame, counters: pd.DataFrame, unjoined: list[str]) -> pd.DataFrame:
    """FIGURES of the launches whose call agrees with what was counted, by the index of `wanted`."""
    pairs = pair(wanted, counters)
    unjoined += [words for words in pairs.unjoined if words not in unjoined]
    left = wanted.iloc[pairs.launch]
    rows = join(left.reset_index(drop=True), counters.iloc[pairs.counter].reset_index(drop=True)).rows
    kept = (rows["joined"] == "ordinal").fillna(False).to_numpy(bool)
    figures = rows.loc[kept, list(FIGURES)]
    out: pd.DataFrame = figures.astype(DTYPES).set_axis(left.index[kept])
    return out


def _only_top(classified: pd.DataFrame, top: int | None) -> pd.DataFrame:
    """Leave out all but the kernels (role and name) of each phase with most time."""
    if top is None:
        return classified
    keys = ["phase", "role", "key"]
    times = classified.groupby(keys, sort=False, dropna=False)["time_ns"].sum().sort_values(ascending=False)
    kept = set(times.groupby("phase", sort=False, dropna=False).head(top).index)
    out = np.array([k not in kept for k in classified[keys].itertuples(index=False, name=None)], bool)
    out &= (classified["class"] >= 0).to_numpy(bool)
    result: pd.DataFrame = classified.copy()
    result.loc[out, "never"] = NOT_TOP
    result.loc[out, "class"] = -1
    return result


def _record(
    result: Spread, counter: Counter, said: list[str], unjoined: list[str], lacking: dict[str, str]
) -> dict[str, Any]:
    return {
        "status": "counted",
        "line": result.line(),
        "counted": result.counted,
        "known": result.known,
        "launches": result.total,
        "split": said,
        "unjoined": unjoined,
        "residuals": [r._asdict() for r in result.residuals],
        "lacking": lacking,
        "notes": counter.notes,
        "exports": sorted(set(counter.exports)),
        "tool": counter.tool.text,
        "options": counter.options._asdict(),
        "purposes": [p._asdict() for p in counter.purposes],
    }
