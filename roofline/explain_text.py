"""The records of `kernelroof.roofline.explain` on one screen each: at most 100 columns and about 45 lines."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from kernelroof.roofline.explain import COUNTERS
from kernelroof.roofline.large_rows import leading
from kernelroof.roofline.place import TOLERANCE_PCT
from kernelroof.roofline.steady import SCALE, short_doubts
from kernelroof.roofline.table_notes import NOTES, table_notes
from kernelroof.roofline.text_table import text_table
from kernelroof.roofline.units import counted, fixed, quantity, seconds
from kernelroof.roofline.waterfall_text import term_lines

WIDTH = 100
_NAME = 44
_DASH = "–"
_LEAST = 5
"""Samples from which quartiles tell something."""
_ALIKE = 1.1
"""Up to this ratio recordings agree."""


def run_lines(phases: Sequence[Mapping[str, Any]], run: str) -> list[str]:
    """All phases, briefly, each with its kinds of work."""
    out: list[str] = []
    for one in phases:
        out += [*_head(one), *_doubts(one), "", *_table("kind of work", one["kinds"], "kind", 6, one), ""]
        if one["kernels"]:
            out += [*_wrapped(_kernel_sentence(one["kernels"][0])), ""]
    name = phases[-1]["phase"]
    return [*out, *_next(run, f"--phase {name}")]


def phase_lines(one: Mapping[str, Any], run: str) -> list[str]:
    """One phase: questions and answers, modules, kernels, odd layers."""
    out = [*_head(one), *_doubts(one)]
    for pair in one["answers"]:
        out += _wrapped(f"{pair['question']} {pair['answer']}", "  ")
    fewer = 2 if one["doubts"] else 0
    modules = _table("module", one["modules"], "module", 7 - fewer, one)
    kernels = _table("kernel", one["kernels"], "kernel", 8 - fewer, one)
    # A note that both tables need is told once, under the last.
    out += ["", *(line for line in modules if line not in NOTES or line not in kernels), "", *kernels, *_odd(one)]
    further = [f"--phase {one['phase']} --kernel 1"]
    if one["modules"]:
        further.insert(0, f"--phase {one['phase']} --module {_quoted(one['modules'][0]['module'])}")
    return [*out, "", *_next(run, *further)]


def module_lines(one: Mapping[str, Any], run: str) -> list[str]:
    """One module or layer: its waterfall, its layers side by side, its kernels."""
    each = _each(one)
    out = _wrapped(
        f"{one['phase']}, {one['module']}: {counted(len(one['paths']), 'module')}; at the roof {_time(one['ideal_ns'])}"
        f"{each}, takes {_time(one['time_ns'])}{each}, recoverable {_time(one['recoverable_ns'])}{each}; before its "
        f"kernels nothing runs for {_time(one['idle_ns'])}{each}"
    )
    if one["without_figures"]:
        out += _wrapped(f"{counted(one['without_figures'], 'row')} without FLOPs or bytes have no place under a roof")
    out += _doubts(one)
    whole = {term: ns * one["steps"] for term, ns in one["terms_ns"].items()}
    title = "where the time goes" + (", each module by itself" if len(one["paths"]) > 1 and not one["layer"] else "")
    out += ["", *(line[:WIDTH] for line in term_lines(whole, one["steps"], title, "its kernels and before"))]
    if len(one["layers"]) > 1:
        out += ["", *_side_by_side(one)]
    out += [*_odd(one)]
    out += ["", *_table("its part of kernel", one["kernels"], "kernel", 8, one)]
    further = [f"--phase {one['phase']} --kernel {k['number']}" for k in one["kernels"][:1]]
    return [*out, "", *_next(run, *further)]


def kernel_lines(one: Mapping[str, Any], run: str) -> list[str]:
    """One kernel: figures, launches, spread, counters, and what to do."""
    each = _each(one)
    out = _wrapped(f"{one['phase']}, kernel {one['number']}: {one['kernel']} ({one['module']})")
    if one["full_name"] not in one["kernel"]:
        out += textwrap.wrap(one["full_name"], WIDTH - 2, initial_indent="  ", subsequent_indent="  ", max_lines=3)
    share = f" ({_percent(one['share_pct'])} of the wall time)" if one["share_pct"] is not None else ""
    out += _wrapped(
        f"at the roof {_time(one['ideal_ns'])}{each}, takes {_time(one['time_ns'])}{each}{share}, recoverable "
        f"{_time(one['recoverable_ns'])}{each}"
    )
    out += _doubts(one)
    out += ["", *_wrapped(f"What to do: {one['advice']}")]
    if one["reason"]:
        out += _wrapped(f"Why: {one['bound']}, {one['reason']}")
    facts = [
        ("op", one["op"]),
        ("operands", one["shapes"]),
        ("type", one["dtype"]),
        ("FLOPs" + each, quantity(one["flops"], "FLOP", 4)),
        ("bytes" + each, quantity(one["bytes"], "B", 4)),
        ("intensity", _unit(one["intensity"], "FLOP/B")),
        ("reached", f"{quantity(one['attained_flop_s'], 'FLOP/s', 3)}, {quantity(one['attained_byte_s'], 'B/s', 3)}"),
        ("of its roof", _unit(one["pct_of_roof"], "%")),
        ("sources", ", ".join(f"{n.split('_')[0]} {'+'.join(v) or 'none'}" for n, v in one["sources"].items())),
        ("launches" + each, fixed(one["launches"], 6).rstrip("0").rstrip(".")),
    ]
    if one["launch_ns"]:
        found = one["launch_ns"]
        shown = ", of the recording shown" if (one["spread"]["recordings"] or 0) > 1 else ""
        middle = f"{_time(found['median'])} (quartiles {_time(found['low'])} to {_time(found['high'])}"
        facts.append(("one launch", f"{middle}, all {_time(found['min'])} to {_time(found['max'])}{shown})"))
    facts.append(("one step", _spread(one["spread"])))
    if words := _disagreement(one):
        facts.append(("recordings", words))
    facts += _counters(one["counters"])
    out += [""]
    for name, value in facts:
        out += textwrap.wrap(
            str(value or _DASH), WIDTH, initial_indent=f"  {name:<20} ", subsequent_indent=" " * 23, max_lines=2
        )
    out += ["", "slowest launches"]
    for row in one["slowest"]:
        step = "" if row["step"] is None else f", step {int(row['step'])}"
        out.append(f"  {_time(row['time_ns']):>9}  {row['module']}{step}"[:WIDTH])
    if len(one["layers"]) > 1:
        out += ["", *_side_by_side(one)]
    out += _odd(one)
    return [*out, "", *_next(run, f"--phase {one['phase']} --module {_quoted(one['module'])}", deeper=False)]


def _spread(found: Mapping[str, Any]) -> str:
    if not found["samples"]:
        return "its spread is not known"
    words = f"median {_time(found['step_median_ns'])} over {counted(int(found['samples']), 'sample')}"
    if found["step_low_ns"] is None:
        return f"{words}: no spread is known"
    words += f", quartiles {_time(found['step_low_ns'])} to {_time(found['step_high_ns'])}"
    return words + (f", {found['growth_pct']:+.0f} % from first to last" if found["growth_pct"] is not None else "")


def _disagreement(one: Mapping[str, Any]) -> str:
    """What is said where recordings differ, or the time shown is none of the middle half of all steps; else nothing."""
    low, high, shown = one["spread"]["step_low_ns"], one["spread"]["step_high_ns"], one["time_ns"]
    each = one["recordings_ns"]
    if len(each) < 2 or low is None or shown is None:
        return ""
    found = f"{_time(min(each))} to {_time(max(each))}"
    outside = one["spread"]["samples"] >= _LEAST and not low <= shown <= high
    if max(each) > (_ALIKE if outside else SCALE) * min(each):
        return f"! recordings disagree: {found}{_each(one)}; shown is the shortest whole one of {len(each)}"
    return f"! its mean step ({found}) lies outside of its quartiles: a few long steps" if outside else ""


def _counters(found: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if found is None:
        return [("counters", "none: FLOPs and bytes are traced")]
    values = [f"{words} {fixed(found[n], 3)}" for n, words in COUNTERS.items() if found.get(n) is not None]
    return [("counters (ncu)", f"{'; '.join(values) or 'none known'}; of {counted(found['launches'], 'launch')}")]


def _head(one: Mapping[str, Any]) -> list[str]:
    each = _each(one)
    should = "no model" if one["ideal_ns"] is None else f"{_time(one['ideal_ns'])}{each} should be"
    lines = [
        f"{one['phase']}: {should}, {_time(one['wall_ns'])}{each} is; {_time(one['kernel_ns'])} in kernels, "
        f"{_time(one['recoverable_ns'])} recoverable in them"
    ]
    return _wrapped(lines[0])


def _doubts(one: Mapping[str, Any]) -> list[str]:
    """Why the figures may not be trusted, on a few lines."""
    if not one["doubts"]:
        return []
    words = f"! in doubt: {short_doubts(one['doubts'])} (wall.json)"
    return textwrap.wrap(words, WIDTH, subsequent_indent="  ", break_on_hyphens=False, max_lines=3)


def _percent(value: float) -> str:
    return "under 0.1 %" if 0 < value < 0.1 else f"{fixed(value, 2) if value < 99.5 else f'{value:.0f}'} %"


def _table(head: str, rows: Sequence[Mapping[str, Any]], key: str, most: int, one: Mapping[str, Any]) -> list[str]:
    """Rows with what they should take, take and could recover, in ms of one step; the rest in one line."""
    bound = bool(rows) and "bound" in rows[0]
    whole = one["wall_ns"] if "wall_ns" in one else one["time_ns"]
    places = leading([r["recoverable_ns"] for r in rows], [r["time_ns"] for r in rows], most, whole or 0.0)
    shown = [rows[i] for i in places]
    marked = any((r.get("pct_of_roof") or 0.0) > TOLERANCE_PCT for r in shown)
    body = [_row(r, _label(r, key), bound=bound, marked=marked) for r in shown]
    rest = [r for i, r in enumerate(rows) if i not in places]
    if rest:
        total = {n: _total(rest, n) for n in ("ideal_ns", "time_ns", "recoverable_ns")}
        last = {**total, "bound": "", "pct_of_roof": None}
        body.append(_row(last, f"and {len(rest)} more", bound=bound, marked=marked))
    each = "ms per step" if one["steps"] > 1 else "ms"
    names = [f"{head} ({each})", "at the roof", "takes", "recoverable", *(("bound", "roof %") if bound else ())]
    return [*text_table(names, body, left=(0, 4)).splitlines(), *table_notes(shown)]


def _label(row: Mapping[str, Any], key: str) -> str:
    name = _short(str(row[key]), _NAME - 4)
    return f"{row['number']:>3} {name}" if "number" in row else name


def _row(row: Mapping[str, Any], name: str, *, bound: bool, marked: bool) -> list[str]:
    cells = [name, *(_ms(row[n]) for n in ("ideal_ns", "time_ns", "recoverable_ns"))]
    if bound:
        share = row["pct_of_roof"]
        mark = marked * (" !" if share is not None and share > TOLERANCE_PCT else "  ")
        cells += [str(row["bound"]), _DASH if share is None else f"{share:.1f}{mark}"]
        cells[-1] = "" if not row["bound"] else cells[-1]
    return cells


def _total(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    known = [r[name] for r in rows if r[name] is not None]
    return sum(known) if known else None


def _side_by_side(one: Mapping[str, Any]) -> list[str]:
    """Layers in columns, those that are odd with a mark."""
    odd = {str(o["layer"]) for o in one["odd_layers"]}
    cells = [
        f"{r['layer'].rpartition('.')[2]}: {_time(r['time_ns'])}{' !' if r['layer'] in odd else ''}"
        for r in one["layers"]
    ]
    wide = max(map(len, cells)) + 3
    across = max(1, (WIDTH - 2) // wide)
    shown, lines = cells[: across * 8], ["layers side by side, median of a step" + (" (! differs)" if odd else "")]
    for i in range(0, len(shown), across):
        lines.append("  " + "".join(c.ljust(wide) for c in shown[i : i + across]).rstrip())
    return lines + ([f"  and {len(cells) - len(shown)} more"] if len(cells) > len(shown) else [])


def _odd(one: Mapping[str, Any]) -> list[str]:
    out: list[str] = []
    for row in one["odd_layers"][:3]:
        out += _wrapped(f"! {row['words']}")
    more = len(one["odd_layers"]) - 3
    return [*out, *([f"! and {counted(more, 'other layer')}"] if more > 0 else [])]


def _kernel_sentence(kernel: Mapping[str, Any]) -> str:
    return f"most recoverable: {kernel['kernel']}, {_time(kernel['recoverable_ns'])}: {kernel['advice']}"


def _next(run: str, *options: str, deeper: bool = True) -> list[str]:
    if not options:
        return []
    lines = ["deeper:" if deeper else "back:"]
    return lines + [f"  kernelroof explain {run} {words}" for words in options]


def _quoted(name: str) -> str:
    return f"'{name}'" if any(c in name for c in "*()") else name


def _each(one: Mapping[str, Any]) -> str:
    return " per step" if one["steps"] > 1 else ""


def _wrapped(words: str, indent: str = "") -> list[str]:
    return textwrap.wrap(words, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)


def _short(name: str, room: int) -> str:
    return name if len(name) <= room else f"…{name[1 - room :]}"


def _time(value_ns: float | None) -> str:
    return _DASH if value_ns is None else seconds(value_ns / 1e9, 3)


def _ms(value_ns: float | None) -> str:
    if value_ns is None:
        return _DASH
    return "<0.001" if 0 < value_ns < 500 else fixed(value_ns / 1e6, 4)


def _unit(value: float | None, unit: str) -> str:
    return _DASH if value is None else f"{fixed(value, 3)} {unit}"
