"""A comparison of two runs for a terminal, in one screen."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import pandas as pd
from kernelroof.roofline.ceilings import Ceilings
from kernelroof.roofline.comparability import Difference
from kernelroof.roofline.diff_noise import PhaseChange
from kernelroof.roofline.text_table import text_table
from kernelroof.roofline.units import fixed, quantity, seconds
from kernelroof.roofline.waterfall import WORDS

_WIDTH = 100
_DASH = "–"


def diff_lines(
    names: tuple[str, str],
    phases: Mapping[str, PhaseChange],
    lines: pd.DataFrame,
    terms: pd.DataFrame,
    setup: Sequence[Difference],
    warnings: Sequence[str],
    roofs: Sequence[Ceilings],
    *,
    same_work: bool = True,
    top: int = 8,
) -> list[str]:
    """Lines of at most 100 columns: set-ups and roofs, then each phase with its terms and most changed roles."""
    out = [f"A {names[0]}", f"B {names[1]}"]
    if setup:
        out += _wrapped("set-up differs: " + "; ".join(f"{d.what} {_short(d.a)} -> {_short(d.b)}" for d in setup), "")
    else:
        out.append("no difference of set-up is recorded: what differs is the machine, or code beneath it")
    out += _wrapped(roofs_line(roofs), "")
    for words in warnings:
        out += _wrapped(words, "  ! ")
    for phase, change in phases.items():
        out += ["", *_wrapped(phase_line(phase, change, same_work=same_work), "")]
        out += phase_table(lines[lines["phase"] == phase], change, top)
        out += terms_table(terms[terms["phase"] == phase], phase)
    return out


def roofs_line(roofs: Sequence[Ceilings]) -> str:
    """The roofs of both runs, on which their ideals and shares rest."""
    pairs = [(quantity(r.flop_s, "FLOP/s", 3), quantity(r.byte_s, "B/s", 3)) for r in roofs]
    words = "; ".join(
        f"{what} {pairs[0][i]} -> {pairs[1][i]} ({_signed(100 * (b / a - 1))} %)"
        for i, (what, a, b) in enumerate(
            [("compute", roofs[0].flop_s, roofs[1].flop_s), ("memory", roofs[0].byte_s, roofs[1].byte_s)]
        )
    )
    return f"roofs, on which ideals and shares rest: {words}"


def phase_line(phase: str, change: PhaseChange, *, same_work: bool = True) -> str:
    """What became of a phase, in one sentence."""
    what = "slower" if change.change_pct > 0 else "faster"
    times = f"{seconds(change.a_ns / 1e9, 3)} -> {seconds(change.b_ns / 1e9, 3)} ({_signed(change.change_pct)} %)"
    if not same_work:
        return f"{phase}: {times}: other work, neither slower nor faster"
    verdict = what if change.changed else "no change beyond the noise floor"
    drift = f"; all its work {_signed(change.drift_pct)} % alike" if abs(change.drift_pct) >= 1 else ""
    return f"{phase}: {times}, noise floor {fixed(change.noise_pct, 2)} % ({change.noise_from}): {verdict}{drift}"


def phase_table(lines: pd.DataFrame, change: PhaseChange, top: int) -> list[str]:
    """The roles that changed, most first; a sentence where none did."""
    changed = lines[lines["changed"]]
    if changed.empty:
        return [f"  {len(lines)} roles compared, none changed by more than noise"]
    body = []
    for row in changed.head(top).to_dict("records"):
        of = "" if not change.a_ns else f"{_signed(100 * row['delta_ns'] / change.a_ns)}"
        body.append(
            [
                f"{_tail(str(row['module']), 34)} ({row['kind']})",
                _time(row["a_time_ns"]),
                _time(row["b_time_ns"]),
                _delta(row["delta_ns"]),
                of,
                f"{_one(row['a_pct_of_roof'])} -> {_one(row['b_pct_of_roof'])}",
                row["says"],
            ]
        )
    heads = ["role", "A", "B", "B - A", "% of wall", "% of roof", ""]
    text = text_table(heads, body, left=(0, 6)).splitlines()
    rest = len(changed) - top
    return [*text, *([f"and {rest} more"] if rest > 0 else []), *_renamed(changed)]


def terms_table(terms: pd.DataFrame, phase: str) -> list[str]:
    """The waterfalls of both runs beside each other; terms that are nothing in both are left out."""
    body = []
    for row in terms.to_dict("records"):
        if row["a_ns"] or row["b_ns"]:
            words = "bare wall time" if row["term"] == "total_ns" else WORDS[str(row["term"])]
            body.append([words, _ms(row["a_ns"]), _ms(row["b_ns"]), _delta(row["b_ns"] - row["a_ns"])])
    if not body:
        return []
    return text_table([f"{phase}: where the time goes", "A ms", "B ms", "B - A"], body, left=(0,)).splitlines()


def _renamed(changed: pd.DataFrame) -> list[str]:
    """What changed roles launch else: another number of kernels, or kernels of other names."""
    lines = []
    for row in changed.head(4).to_dict("records"):
        if pd.isna(row["a_names"]) or pd.isna(row["b_names"]):
            continue
        a, b = (list(dict.fromkeys(str(row[f"{side}_names"]).split(" | "))) for side in "ab")
        here = f"{_tail(str(row['module']), 40)} ({row['kind']})"
        if abs(row["b_launches"] - row["a_launches"]) > 0.01 * row["a_launches"]:
            counts = f"{row['a_launches']:.4g} -> {row['b_launches']:.4g}"
            lines += _wrapped(f"{here} launches {counts} kernels a forward", "  ")
        for side, names in (("A", [n for n in a if n not in b]), ("B", [n for n in b if n not in a])):
            if names:
                lines += _wrapped(f"{here} only in {side}: {_short(' | '.join(names), 100)}", "  ")
    return lines


def _wrapped(words: str, indent: str) -> list[str]:
    return textwrap.wrap(words, _WIDTH, initial_indent=indent, subsequent_indent="    ", break_on_hyphens=False)


def _tail(words: str, room: int) -> str:
    short = words.removeprefix("model.").removeprefix("layers.")
    return short if len(short) <= room else f"…{short[len(short) - room + 1 :]}"


def _short(words: str, room: int = 40) -> str:
    return words if len(words) <= room else f"{words[: room - 1]}…"


def _time(ns: float) -> str:
    return _DASH if pd.isna(ns) else seconds(ns / 1e9, 3)


def _ms(ns: float) -> str:
    return ("-" if ns < 0 else "") + fixed(abs(ns) / 1e6, 3)


def _delta(ns: float) -> str:
    return f"{'-' if ns < 0 else '+'}{seconds(abs(ns) / 1e9, 3)}"


def _signed(pct: float) -> str:
    return f"{'-' if pct < 0 else '+'}{abs(pct):.1f}"


def _one(pct: float) -> str:
    return _DASH if pd.isna(pct) else f"{pct:.0f}"
