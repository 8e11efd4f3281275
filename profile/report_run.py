"""report.html of a run of `kernelroof profile`: its tables brought onto the page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelroof.profile.compiled_record import compiled_lines
from kernelroof.profile.finished_run import FinishedRun
from kernelroof.profile.run_files import MEANINGS
from kernelroof.profile.runfolder import read_json, write_text
from kernelroof.roofline.card import estimate_card
from kernelroof.roofline.units import counted, seconds

if TYPE_CHECKING:
    from kernelroof.roofline.report_data import PageInput, PhaseInput


def write_report(run: FinishedRun, target: Path) -> None:
    """Render the page of a run to `target`, under its name only when it is whole."""
    from kernelroof.roofline.html import page
    from kernelroof.roofline.report_data import report_data

    phases = [phase_input(run, name) for name in run.walls]
    data = report_data(page_input(run, phases), phases)
    write_text(target, page("report", data, title=data["title"]))


def page_input(run: FinishedRun, phases: list[PhaseInput]) -> PageInput:
    """Everything of the page that is not of one phase."""
    from kernelroof.roofline.report_data import PageInput, roofs_of
    from kernelroof.roofline.siblings import odd_layers
    from kernelroof.roofline.steady import named_doubts
    from kernelroof.roofline.text import conventions

    who = run.identity
    load = f"batch {who['batch']}, prompt {who['prompt']}, output {who['output']}"
    return PageInput(
        title=f"{who['model']}, {load}, {who['dtype']} on {run.ceilings.name}",
        made_by=f"kernelroof {version('kernelroof')}",
        source="profile",
        subject=_subject(run),
        doubts=named_doubts({name: wall["doubts"] for name, wall in run.walls.items()}),
        roofs=roofs_of(run.ceilings),
        parts=run.waterfall,
        siblings=odd_layers(run.kernels)[["phase", "layer", "words", "time_ns", "typical_ns"]].to_dict("records"),
        estimate=estimate_card(run.estimate),
        environment=list(_flat(run.environment)),
        commands=list(_commands(run)),
        conventions=[
            *(line for line in conventions(run.ceilings) if not line.startswith("±")),
            *(f"{name}: {words}" for name, words in run.estimate["conventions"].items()),
        ],
        missing=list(_missing(run, phases)),
        files=[(name, holds) for name, holds in MEANINGS.items() if any(run.path.glob(name))],
    )


def _clock_facts(wall: Mapping[str, Any], steps: int, *, scaled: bool) -> list[str]:
    how = "; with the profiler's cost per event taken off, recorded times were scaled by"
    recorded = f"under the profiler {seconds(wall['recorded_ns'] / steps / 1e9)}"
    return [f"{recorded}{how} {wall['factor']:.3f}" if scaled else recorded]


def phase_input(run: FinishedRun, name: str) -> PhaseInput:
    """One phase of a run, on the bare run's clock."""
    from kernelroof.roofline.advice import phase_answers
    from kernelroof.roofline.report_data import PhaseInput
    from kernelroof.roofline.report_tables import with_facts
    from kernelroof.roofline.step_timeline import step_timeline
    from kernelroof.roofline.summary import estimate_points, with_roles
    from kernelroof.roofline.text import facts, verdict

    wall, tables = run.walls[name], run.phase(name)
    rows = with_roles(run.kernels[run.kernels["phase"] == name]).reset_index(drop=True)
    terms = run.terms(name)
    summary = tables.summary
    return PhaseInput(
        name=name,
        key=name,
        steps=run.steps(name),
        clock="bare run" if run.scaled else "timeline, without the recording's own time",
        kernels=with_facts(tables.kernels, rows),
        modules=tables.modules,
        rows=rows,
        wall_ns=wall["bare_ns"],
        wall_low_ns=wall["bare_min_ns"],
        wall_high_ns=wall["bare_max_ns"],
        repeats=wall["repeats"],
        kernel_ns=summary.kernel_ns,
        overlap_ns=summary.overlap_ns,
        gap_ns=wall["gap_ns"],
        ideal_ns=summary.model_ns,
        recoverable_ns=summary.recoverable_ns,
        verdict=verdict(summary),
        facts=[*facts(summary), *_clock_facts(wall, run.steps(name), scaled=run.scaled)],
        doubts=wall["doubts"],
        answers=phase_answers(*tables, terms, run.setting(name), wall["doubts"]),
        waterfall=terms,
        model=run.model_cost(name),
        estimates=estimate_points(run.ops, name)["modules"],
        step_ns=wall["step_ns"],
        timeline=step_timeline(run.launches, rows, name),
    )


def _subject(run: FinishedRun) -> list[tuple[str, str]]:
    who = run.identity
    sources = run.sources
    mode = who["driver"].get("compile")
    how = f"torch.compile ({mode})" if mode else "eager"
    return [
        ("model", f"{who['model']}, {run.estimate['parameters']:,} parameters; {run.estimate['architecture']}"),
        ("workload", f"batch {who['batch']}, prompt {who['prompt']}, output {who['output']}"),
        ("how it ran", f"{who['dtype']}, {who['attn']} attention, {who['cache']} cache, {how}"),
        ("device", run.ceilings.name),
        ("times from", {"torch": "torch.profiler", "nsys": "nsys"}.get(sources.get("timeline", ""), "–")),
        ("FLOPs and bytes", "counted by ncu" if _was_counted(run) else "traced from the model's own ops"),
    ]


def _was_counted(run: FinishedRun) -> bool:
    return run.counters is not None and run.counters.get("status") == "counted"


def _commands(run: FinishedRun) -> Iterator[tuple[str, str]]:
    own = run.environment.get("command")
    if own:
        yield "this run", shlex.join(map(str, own))
    if (run.path / "timeline.json").exists() and (command := read_json(run.path / "timeline.json").get("command")):
        yield "the recording", shlex.join(map(str, command))
    for mark in sorted(run.path.glob("counters-*.json")):
        counting = read_json(mark)
        how = f"caches {counting['cache_control']}, clocks {counting['clock_control']}"
        yield f"{mark.stem} ({how})", shlex.join(map(str, counting["command"]))


def _missing(run: FinishedRun, phases: list[PhaseInput]) -> Iterator[tuple[str, str, str]]:
    """What is not on the page: what, why, and how to get it."""
    record = run.counters
    if record is not None and record["status"] != "counted":
        yield "counted FLOPs and bytes", str(record["why"]), str(record["hint"])
    elif record is None:
        why = "a CPU has no counters that ncu reads" if run.scaled else "counters were not asked for"
        how = "profile on an NVIDIA GPU with ncu" if run.scaled else "profile with --counters ncu"
        yield "counted FLOPs and bytes", f"{why}: figures are traced from the model's own ops", how
    for words, how in ((record or {}).get("lacking") or {}).items():
        yield f"metric {words}", str(how), "another version of ncu, or another GPU"
    for phase in phases:
        unknown = phase.rows[phase.rows["ideal_ns"].isna()]
        for reason, rows in unknown.groupby(unknown["reason"].fillna("not known why"), sort=False):
            time = seconds(float((rows["time_ns"] * rows["count"]).sum()) / phase.steps / 1e9, 3)
            each = " a step" if phase.steps > 1 else ""
            what = f"FLOPs or bytes of {counted(int(rows['count'].sum()), 'launch')} in {phase.name} ({time}{each})"
            yield what, str(reason), "their time is in every sum; they have no place on the roofline"
        if not (phase.kernels["samples"] > 1).any():
            yield f"the spread of kernels in {phase.name}", "one forward was recorded", "see the bare repeats' spread"
    if len(run.unmatched):
        yield f"{len(run.unmatched)} traced ops", "not found in the recording", "see unmatched.csv"
    if run.estimate["prefill"].get("expected_ms") is None:
        yield "expected times", "nobody measured kernels on this device", "estimate --gpu, for GPUs that were measured"
    if run.identity["driver"].get("compile"):
        for line in compiled_lines(run.path):
            yield "module ranges inside compiled code", line, ""
    for name, why in (run.environment.get("reasons") or {}).items():
        yield name, str(why), ""


def _flat(record: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """A nested record as lines; the command has a place of its own."""
    for name, value in record.items():
        path = f"{before}{name}"
        if path in ("command", "reasons"):
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}.")
        elif value is not None:
            yield path, ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
