"""The data of report.html as one JSON object: what `web/report.js` draws, and nothing that it must compute.

Times are ns, work FLOP, traffic bytes, rates per second; missing is null. Amounts of a phase are sums over its
`steps` forwards; the page shows amount / steps, as the terminal does. Tables are column-wise; texts that repeat
are coded (`kernelroof.roofline.columns`).

- `title`, `made_by`, `source` ("profile" or "analyze"), `subject` [[name, value]], `doubts` [text]
- `roofs` {name, dtype, origin, note, memory [{name, byte_s}], compute [{name, flop_s}]}: the first of each is the
  one that shares are of; null where none is known. A phase may have its own.
- `phases` [PhaseInput as an object]: see there
- `roles`, `launches`, `modules`: see `kernelroof.roofline.report_tables`; `launches_note`
- `parts`: waterfall.csv by column; `terms` [[column, words]]
- `siblings` [{phase, layer, words, time_ns, typical_ns}]: layers that differ from their siblings
- `estimate` {text}: the card as the terminal prints it
- `environment` [[name, value]], `commands` [[what, command]], `conventions` [text], `missing` [[what, why, remedy]],
  `files` [[name, what it holds]], `colours`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from kernelroof.roofline import palette
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.columns import coded, figure, figures
from kernelroof.roofline.report_tables import launches, modules, number_roles, roles
from kernelroof.roofline.waterfall import TERMS, WORDS


class PhaseInput(NamedTuple):
    """One phase (or one clock of it) as the page shows it."""

    name: str
    key: str
    """the phase in the tables; two clocks of one phase have the same"""
    steps: int
    clock: str
    """which clock its times are on: bare run, inside ncu, on the timeline"""
    kernels: pd.DataFrame
    """kernel roles: `summary.kernel_table` with `report_tables.with_facts`, `advice` and spread where known"""
    modules: pd.DataFrame
    rows: pd.DataFrame
    """placed launches with `role` and `op`"""
    wall_ns: float | None = None
    wall_low_ns: float | None = None
    wall_high_ns: float | None = None
    repeats: int | None = None
    kernel_ns: float | None = None
    overlap_ns: float | None = None
    gap_ns: float | None = None
    ideal_ns: float | None = None
    """the model at its roof"""
    recoverable_ns: float | None = None
    verdict: str = ""
    facts: Sequence[str] = ()
    doubts: Sequence[str] = ()
    answers: Sequence[tuple[str, str]] = ()
    waterfall: Mapping[str, int] | None = None
    """terms of `kernelroof.roofline.waterfall` in order; they sum to the wall time"""
    model: tuple[int, int] | None = None
    """FLOPs and bytes of the model's own estimate"""
    estimates: Mapping[str, tuple[int, int]] | None = None
    """traced FLOPs and bytes by kind of module"""
    step_ns: Sequence[int] = ()
    timeline: Mapping[str, Any] | None = None
    """one step: `step`, `length_ns`, `notes`, and columns `start_ns`, `time_ns`, `row` (into `rows`), `lane`"""
    roofs: Mapping[str, Any] | None = None


class PageInput(NamedTuple):
    """All of a page besides its phases; the fields are those of the data object."""

    title: str
    made_by: str
    source: str
    subject: Sequence[tuple[str, str]]
    doubts: Sequence[str]
    roofs: Mapping[str, Any] | None
    parts: pd.DataFrame | None
    siblings: Sequence[Mapping[str, Any]]
    estimate: str | None
    environment: Sequence[tuple[str, str]]
    commands: Sequence[tuple[str, str]]
    conventions: Sequence[str]
    missing: Sequence[tuple[str, str, str]]
    files: Sequence[tuple[str, str]]


def report_data(page: PageInput, phases: Sequence[PhaseInput]) -> dict[str, Any]:
    """The data object of report.html."""
    keys = [str(i) for i in range(len(phases))]
    tables = [p.kernels for p in phases]
    numbered = number_roles(tables, keys)
    rows = [p.rows.assign(phase=key) for p, key in zip(phases, keys, strict=True)]
    single = launches(pd.concat(rows, ignore_index=True), numbered)
    return {
        "title": page.title,
        "made_by": page.made_by,
        "source": page.source,
        "subject": _pairs(page.subject),
        "doubts": list(page.doubts),
        "roofs": page.roofs,
        "phases": [_phase(p, _roles_of(p, key, numbered)) for p, key in zip(phases, keys, strict=True)],
        "roles": roles(tables),
        "launches": single.columns,
        "launches_note": single.note,
        "parts": _parts(page.parts),
        "terms": [[name, WORDS[name]] for name in TERMS],
        "modules": modules([p.modules for p in phases]),
        "siblings": [{k: v if isinstance(v, str) else figure(v) for k, v in s.items()} for s in page.siblings],
        "estimate": {"text": page.estimate} if page.estimate else None,
        "environment": _pairs(page.environment),
        "commands": _pairs(page.commands),
        "conventions": list(page.conventions),
        "missing": [list(m) for m in page.missing],
        "files": _pairs(page.files),
        "colours": palette.page_colours(),
    }


def roofs_of(ceilings: Ceilings) -> dict[str, Any]:
    """The roofs of a measured run, for the page."""
    memory = [{"name": "DRAM", "byte_s": figure(ceilings.byte_s)}]
    if ceilings.cache_byte_s:
        memory.append({"name": "cache", "byte_s": figure(ceilings.cache_byte_s)})
    return {
        "name": ceilings.name,
        "dtype": ceilings.dtype,
        "origin": ceilings.origin,
        "note": ceilings.note,
        "memory": memory,
        "compute": [{"name": f"{ceilings.dtype}", "flop_s": figure(ceilings.flop_s)}],
    }


def _phase(phase: PhaseInput, role_of_row: Sequence[int]) -> dict[str, Any]:
    shown = ("name", "steps", "clock", "repeats", "verdict", "roofs")
    amounts = ("wall_ns", "wall_low_ns", "wall_high_ns", "kernel_ns", "overlap_ns", "gap_ns", "ideal_ns")
    model, estimates = phase.model, phase.estimates or {}
    return {
        **{name: getattr(phase, name) for name in shown},
        **{name: figure(getattr(phase, name)) for name in (*amounts, "recoverable_ns")},
        "facts": list(phase.facts),
        "doubts": list(phase.doubts),
        "answers": _pairs(phase.answers),
        "waterfall": None
        if phase.waterfall is None
        else [{"term": t, "words": WORDS[t], "ns": int(ns)} for t, ns in phase.waterfall.items()],
        "model": None if model is None else {"flops": int(model[0]), "bytes": int(model[1])},
        "estimates": [{"kind": k, "flops": int(f), "bytes": int(b)} for k, (f, b) in estimates.items()],
        "step_ns": [int(ns) for ns in phase.step_ns],
        "timeline": _timeline(phase.timeline, role_of_row),
    }


def _timeline(found: Mapping[str, Any] | None, role_of_row: Sequence[int]) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "step": figure(found["step"]),
        "length_ns": figure(found["length_ns"]),
        "notes": list(found.get("notes", ())),
        "start_ns": figures(found["start_ns"]),
        "time_ns": figures(found["time_ns"]),
        "role": [role_of_row[int(row)] if row is not None and row >= 0 else -1 for row in found["row"]],
        "lane": [str(lane) for lane in found["lane"]],
    }


def _roles_of(phase: PhaseInput, key: str, numbered: Mapping[tuple[Any, ...], int]) -> list[int]:
    """The role of each of the phase's launches, by position."""
    names = ["role", "kind", "op", "kernel"]
    filled = phase.rows[names].astype("object").where(phase.rows[names].notna(), None)
    return [numbered.get((key, *row), -1) for row in filled.itertuples(index=False, name=None)]


def _parts(table: pd.DataFrame | None) -> dict[str, Any] | None:
    if table is None:
        return None
    return {
        **{name: coded(table[name]) for name in ("phase", "scope", "name")},
        **{name: [int(v) for v in table[name]] for name in (*TERMS, "total_ns")},
    }


def _pairs(pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    return [[str(name), str(value)] for name, value in pairs]
