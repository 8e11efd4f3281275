"""What an analysis leaves: tables, pictures, and its story on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from kernelroof.profile.runfolder import RunFolder, write_json
from kernelroof.roofline.counted_text import print_kernels, print_phases, print_roofs, print_verdicts, said
from kernelroof.roofline.kernel_groups import kernels_of, on_clock
from kernelroof.roofline.plot_counted import Estimate, counted_roofline
from kernelroof.roofline.share_card import share_card
from kernelroof.roofline.spread import all_steps, role_steps, step_spread
from kernelroof.roofline.spread_text import samples
from kernelroof.roofline.text import new_console
from kernelroof.roofline.time_card import time_card
from kernelroof.roofline.units import counted, fixed, quantity, seconds

if TYPE_CHECKING:
    from kernelroof.profile.analyze_command import Analysis
    from kernelroof.profile.analyze_inputs import Inputs
    from kernelroof.roofline.report_ceilings import ReportCeilings

CLOCKS = ("ncu", "timeline")
_WORDS = {"ncu": "inside ncu: counted work over ncu's own duration", "timeline": "on the timeline: true durations"}
_LEAST_TYPE_SHARE = 0.01


def write(analysis: Analysis, inputs: Inputs, folder: RunFolder) -> None:
    """Every table of the analysis."""
    from kernelroof.parsers.nsys_windows import phase_sums, step_windows
    from kernelroof.profile.analyze_command import write_frame

    if analysis.table is not None:
        write_frame(folder, "kernels.csv", analysis.table)
    if analysis.counters is not None:
        write_frame(folder, "counters.csv", analysis.counters)
    if analysis.unjoined is not None and analysis.counters is not None:
        write_frame(folder, "unjoined.csv", analysis.unjoined)
    for timeline in inputs.timelines:
        write_frame(folder, "launches.csv", timeline.launches)
        if timeline.nsys is not None:
            write_frame(folder, "phases.csv", phase_sums(timeline.nsys))
            write_frame(folder, "steps.csv", step_windows(timeline.nsys))
    steps = recorded_steps(analysis, inputs)
    if steps is not None:
        write_frame(folder, "repeats.csv", steps)
        write_frame(folder, "spread.csv", step_spread(steps))
    for number, table in enumerate(inputs.ranges):
        write_frame(folder, f"ranges_{number}_{table.report}.csv", table.frame)
    if analysis.estimate is not None:
        write_json(folder.file("estimate.json"), analysis.estimate)
    found = {clock: getattr(analysis.roofs, clock) for clock in CLOCKS}
    write_json(folder.file("ceilings.json"), {c: _roofs_record(r) for c, r in found.items() if r is not None})


def recorded_steps(analysis: Analysis, inputs: Inputs) -> pd.DataFrame | None:
    """The time of each kernel role in each step of each pass of the timeline; None where no step is known."""
    timeline = next(iter(inputs.timelines), None)
    if analysis.table is None or timeline is None or timeline.rounds is None or timeline.rounds.isna().all():
        return None
    rows = analysis.table.assign(time_ns=analysis.table["timeline_ns"])
    rounds = pd.Series(timeline.rounds.to_numpy(), rows.index)
    passes = [role_steps(rows[rounds == number], int(number)) for number in sorted(rounds.dropna().unique())]
    return all_steps(passes)


def _roofs_record(found: ReportCeilings) -> dict[str, Any]:
    record = dict(found._asdict())
    for part in ("memory", "compute"):
        record[part] = {name: roof._asdict() for name, roof in record[part].items()}
    return record


def draw(analysis: Analysis, inputs: Inputs, folder: RunFolder, formats: Sequence[str] = ("png",)) -> dict[str, str]:
    """Every picture that the figures allow; returns file names by what they show."""
    names: dict[str, str] = {}
    if analysis.table is None:
        return names
    source = ", ".join(p.name for p in inputs.paths[:4])
    for clock in CLOCKS:
        rows = on_clock(analysis.table, clock)
        found = getattr(analysis.roofs, clock)
        if rows.empty or found is None:
            continue
        kernels = kernels_of(rows)
        subtitle = f"{found.gpu or 'GPU not named'}; {_WORDS[clock]}; {source}"
        if _placeable(kernels):
            names[f"roofline_{clock}"] = f"roofline_{clock}.png"
            counted_roofline(
                kernels,
                found,
                folder.file(f"roofline_{clock}.png"),
                title=f"Kernels on the roofline, {'inside ncu' if clock == 'ncu' else 'on the timeline'}",
                subtitle="\n".join([*_clock_words(found, clock), subtitle]),
                types=types_of(rows),
                estimates=_estimates(analysis.estimate),
                formats=formats,
                verdicts=clock == str(analysis.table["clock"].iloc[0]),
            )
        elif clock == "ncu":
            names["shares"] = "shares.png"
            share_card(
                kernels,
                folder.file("shares.png"),
                title="Shares of peak, inside ncu: no roofline without bytes and FLOPs",
                subtitle=subtitle,
                why=_why_no_point(rows),
                formats=formats,
            )
        if clock == "timeline":
            names["times"] = "times.png"
            why = "no roofline: these files count no FLOPs and no bytes" if not _placeable(kernels) else ""
            time_card(
                kernels,
                folder.file("times.png"),
                title="Where the kernels' time went",
                subtitle=subtitle,
                why=why,
                formats=formats,
            )
    timeless = analysis.table["time_ns"].isna().all()
    if timeless:
        names["shares"] = "shares.png"
        flat = kernels_of(_without_times(analysis.table))
        share_card(
            flat.assign(time_ns=np.nan),
            folder.file("shares.png"),
            title="Shares of peak, inside ncu: no durations in the report",
            subtitle=f"{analysis.roofs.ncu.gpu if analysis.roofs.ncu else 'GPU not named'}; {source}",
            why="No duration in the report, so no rate and no point.",
            formats=formats,
        )
    return names


def _without_times(table: pd.DataFrame) -> pd.DataFrame:
    """Rows that count launches instead of time, for a card of a report without durations."""
    return on_clock(table.assign(ncu_time_ns=1), "ncu")


def _placeable(kernels: pd.DataFrame) -> bool:
    points = (kernels["flops"] > 0) & (kernels["bytes"] > 0) & kernels["attained_flop_s"].notna()
    return bool(points.fillna(False).any())


def types_of(rows: pd.DataFrame) -> list[str]:
    """The types whose roofs matter: those of at least 1 % of the time, most first."""
    known = rows[rows["roof_type"].notna() & (rows["flops"] > 0).fillna(False)]
    time = (known["time_ns"] * known["count"]).astype("float64").groupby(known["roof_type"]).sum()
    time = time.sort_values(ascending=False)
    return [str(t) for t, ns in time.items() if ns >= _LEAST_TYPE_SHARE * time.sum()][:3]


def _clock_words(found: ReportCeilings, clock: str) -> list[str]:
    if clock != "ncu" or not found.sm_clock_hz:
        return []
    spread = next((n for n in found.notes if n.startswith("SM clock")), None)
    words = f"points and the report's roofs at its SM clock, {quantity(found.sm_clock_hz, 'Hz', 4)}"
    return [spread or words]


def _why_no_point(rows: pd.DataFrame) -> str:
    reasons = rows["reason"].dropna()
    words = str(reasons.mode().iloc[0]) if len(reasons) else "FLOPs and bytes are not in the report"
    return words.removeprefix("bound from the report's percentages; ")


def _estimates(record: dict[str, Any] | None) -> list[Estimate]:
    if record is None:
        return []
    names = {"prefill": "prefill", "decode": f"decode step, context {record['decode']['context']}"}
    return [Estimate(name, record[p]["flops"], record[p]["bytes"]) for p, name in names.items()]


def tell(analysis: Analysis, inputs: Inputs, folder: RunFolder, pictures: dict[str, str], top: int) -> None:
    """The story on the terminal."""
    console = new_console()
    if analysis.estimate is not None:
        from kernelroof.roofline.card import estimate_card

        console.print(estimate_card(analysis.estimate), markup=False, soft_wrap=True)
    from kernelroof.parsers.nsys_windows import phase_sums

    for timeline in inputs.timelines:
        if timeline.nsys is not None:
            console.print()
            print_phases(console, phase_sums(timeline.nsys))
    if analysis.table is not None:
        for clock in CLOCKS:
            rows = on_clock(analysis.table, clock)
            if rows.empty:
                continue
            kernels = kernels_of(rows)
            print_kernels(console, kernels, top, clock)
            if clock == str(analysis.table["clock"].iloc[0]):
                print_verdicts(console, kernels, top)
            found = getattr(analysis.roofs, clock)
            if found is not None and (found.memory or found.compute):
                console.print()
                print_roofs(console, found, "inside ncu" if clock == "ncu" else "on the timeline", types_of(rows))
        if analysis.table["time_ns"].isna().all():
            console.print()
            said(console, "no durations in the report: nothing can be placed; shares of peak are in shares.png")
        for line in _beside_estimate(analysis):
            said(console, line)
        steps = recorded_steps(analysis, inputs)
        if steps is not None:
            spread = step_spread(steps)
            for phase in dict.fromkeys(steps["phase"]):
                said(console, samples(spread, str(phase)))
        _hints(console, analysis)
    for table in inputs.ranges:
        _tell_ranges(console, table.report, table.frame, top)
    for note in analysis.notes:
        said(console, note, "yellow")
    console.print()
    files = ", ".join([*pictures.values(), *(["kernels.csv"] if analysis.table is not None else [])])
    said(console, f"{folder.path}: {files or 'tables only'}")


def _beside_estimate(analysis: Analysis) -> list[str]:
    """Each phase's kernels beside what the model itself says of it; nothing where no range names a phase."""
    record, table = analysis.estimate, analysis.table
    lines: list[str] = []
    if record is None or table is None:
        return lines
    for phase in ("prefill", "decode"):
        rows = table[table["phase"] == phase]
        if rows.empty:
            continue
        steps = max(1, rows["step"].nunique())
        each = float((rows["time_ns"] * rows["count"]).sum()) / steps
        ideal = record[phase]["ideal_ms"]
        words = f"{phase}: kernels {seconds(each / 1e9, 4)} a forward ({steps} recorded)"
        if ideal:
            words += f"; the model's ideal {seconds(ideal / 1e3, 4)}"
            share = 100 * ideal * 1e6 / each if each else float("inf")
            words += f", {share:.0f} % of it" if share <= 100 else ": longer than it took, so another workload or GPU"
        known = rows[rows["flops"].notna()]
        if len(known) and len(known) == len(rows):
            counted = float((known["flops"] * known["count"]).sum()) / steps
            words += f"; counted {counted / record[phase]['flops']:.3f} times the model's FLOPs"
        lines.append(f"{words} (decode: of the first step)" if phase == "decode" else words)
    if not lines:
        lines.append(
            "no range named prefill or decode: the estimate stands beside, and nothing says which kernels are whose"
        )
    return lines


def _hints(console: Any, analysis: Analysis) -> None:
    """Doubts that hold for many rows: flagged durations, hierarchy, what was left unjoined."""
    table = analysis.table
    assert table is not None
    console.print()
    odd = table["hierarchy"].dropna()
    if len(odd):
        said(
            console,
            f"AI_L1 <= AI_L2 <= AI_DRAM does not hold for {counted(len(odd), 'launch')}, e.g. {odd.iloc[0]}",
            "yellow",
        )
    elif table["intensity_l1"].notna().any() and table["intensity_l2"].notna().any():
        said(console, "AI_L1 <= AI_L2 <= AI_DRAM holds for every launch that has all three", "dim")
    ratio = table["duration_ratio"].dropna()
    flagged = ratio[(ratio > 1.5) | (ratio < 1 / 1.5)]
    if len(flagged):
        worst = fixed(float(flagged.max()), 3)
        said(
            console,
            f"{len(flagged)} of {len(ratio)} joined launches last more than 1.5 times as long in one clock as in the "
            f"other (up to {worst} times under ncu): see duration_ratio",
            "yellow",
        )
    if analysis.counters is not None and analysis.unjoined is not None:
        joined = int(table["joined"].notna().sum())
        said(console, f"counters joined to {joined:,} of {len(table):,} launches; the rest is in unjoined.csv")
        for row in analysis.unjoined.head(3).to_dict("records"):
            said(console, f"  {row['side']} {str(row['kernel'])[:60]} ({row['launches']}): {row['reason']}", "dim")


def _tell_ranges(console: Any, report: str, frame: pd.DataFrame, top: int) -> None:
    """A table of ranges from nsys stats: no kernels of its own, or each kernel once per range around it."""
    name = next(c for c in ("range", "name", "kernel") if c in frame)
    time = next((c for c in ("sum_ns", "gpu_span_ns", "time_ns") if c in frame), None)
    console.print()
    said(
        console,
        f"{report}: {counted(len(frame), 'row')}; a table of ranges, which count nested time again; no roofline",
        "bold",
    )
    if time is None:
        return
    text = frame["name"] if report == "nvtx_gpu_proj_trace" else frame[name]
    sums = frame[time].groupby(text.astype("string")).agg(["sum", "size"]).sort_values("sum", ascending=False)
    for label, row in sums.head(top).iterrows():
        said(
            console, f"  {str(label)[:60]}: {seconds(float(row['sum']) / 1e9, 4)} in {counted(int(row['size']), 'row')}"
        )
