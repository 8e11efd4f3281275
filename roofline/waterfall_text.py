"""The waterfall of a phase for a terminal: term by term from the model's ideal to the wall time."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from kernelroof.roofline.text_table import text_table
from kernelroof.roofline.units import fixed
from kernelroof.roofline.waterfall import TERMS, WORDS

_BAR = 30


def waterfall_lines(table: pd.DataFrame, phase: str, steps: int, *, scaled: bool) -> list[str]:
    """Lines of one phase, per forward, in ms: the terms, where the time is after each, and its place as a bar.

    Terms that are nothing are left out. scaled: see `kernelroof.roofline.waterfall.phase_clock`.
    """
    row = table[(table["phase"] == phase) & (table["scope"] == "phase")].iloc[0]
    notes = [] if not scaled else ["the recording's own time was taken off each kernel before (wall.json)"]
    found = {name: int(row[name]) for name in TERMS}
    return [*term_lines(found, steps, f"{phase}: where the time goes", "bare wall time"), *notes]


def term_lines(terms: Mapping[str, int], steps: int, title: str, end: str) -> list[str]:
    """The same of any terms (ns over all steps): `title` heads the first column, `end` names their sum."""
    at = 0.0
    reached = [0.0]
    for name in TERMS:
        reached.append(reached[-1] + float(terms[name]))
    total, most = reached[-1], max(*reached, 1.0)
    body = []
    for name in TERMS:
        term = float(terms[name])
        low, high = sorted((at, at + term))
        at += term
        if term or name == "ideal_ns":
            bar = " " * round(_BAR * low / most) + "█" * max(1, round(_BAR * (high - low) / most))
            body.append([WORDS[name], _ms(term / steps, sign=name != "ideal_ns"), _ms(at / steps), bar])
    body.append([end, "", _ms(total / steps), "█" * round(_BAR * total / most)])
    each = "ms per step" if steps > 1 else "ms"
    return text_table([title, each, "up to", ""], body, left=(0, 3)).splitlines()


def _ms(value_ns: float, *, sign: bool = False) -> str:
    text = fixed(abs(value_ns) / 1e6, 3)
    return ("-" if value_ns < 0 else "+" if sign else "") + text
