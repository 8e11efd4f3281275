"""The rows as a table: Markdown for people, CSV for programs, and the totals."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from kernelroof.models.architectures.survey import BATCH, DTYPE, FIGURES, OUTPUT, PROMPT, Row

_COLUMNS = ("model_type", "class", "since", "traced", "closed form", *FIGURES, "notes")
_SHORT = ("param.", "weights", "cache", "prefill", "step")
RECENT = 2023

_HEAD = """Every causal LM of transformers' table, with its default config, traced on the meta device and compared
with the closed form where there is one: {load}. Layers are cut to the
fewest that show every kind of layer (`models/architectures/shrink.py`); what a default config lacks is given to it
(`completions.py`) and said in the notes.

- **since**: last year in the copyright lines of its modeling file.
- **traced**: prefill and a decode step run, every op with its FLOPs and bytes.
- **param., weights, cache, prefill, step**: parameters, their bytes, bytes of the cache after the step, FLOPs of the
  prefill and of the step (weight products and attention). `=` is exact equality of trace and closed form.
- Products of activations outside softmax attention have the FLOP kind `scan`: those of recurrences (linear attention,
  state spaces), and the convolutions that feed them, are not in the figures; others (an indexer's scores) are.
- Experts are chosen in turn, so tokens share them evenly: tokens × top_k products run, and min(experts, tokens × top_k)
  experts are read.
- Decoders of encoder-decoder families run as the causal LM that they are here: without an encoder's output, so
  cross-attention does not run and its weights are not read.
"""


def markdown(rows: Sequence[Row], *, versions: str, command: str, date: str) -> str:
    """The whole document."""
    load = f"batch {BATCH}, prompt {PROMPT}, {OUTPUT} decode step, {DTYPE}"
    lines = [
        "# Architectures",
        "",
        f"Generated on {date} with {versions} by `{command}`; do not edit.",
        "",
        _HEAD.format(load=load),
        *(f"- {line}" for line in totals(rows)),
        "",
        "| " + " | ".join((*_COLUMNS[:5], *_SHORT, "notes")) + " |",
        "| " + " | ".join("---" for _ in range(11)) + " |",
    ]
    for row in rows:
        cells = [
            f"`{row.model_type}`",
            row.class_name,
            str(row.since or ""),
            "yes" if row.traced else "no",
            "yes" if row.closed_form else "no",
            *_marks(row),
            _notes(row),
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def csv_text(rows: Sequence[Row]) -> str:
    """One line per architecture; figures that differ as traced/closed."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*_COLUMNS[:4], "why not traced", "closed form", "why no closed form", *FIGURES,
                     "scan FLOPs", "differences", "notes", "seconds"))  # fmt: skip
    for row in rows:
        figures = [str(t) if t == c else f"{t}/{c}" for t, c in row.figures] or [""] * len(FIGURES)
        writer.writerow((
            row.model_type, row.class_name, row.since or "", _word(row.traced), row.why_not_traced,
            _word(row.closed_form), row.why_no_closed_form, *figures, row.scan_flops, row.differences, row.notes,
            f"{row.seconds:.1f}",
        ))  # fmt: skip
    return out.getvalue()


def totals(rows: Sequence[Row]) -> list[str]:
    """What the rows come to, a sentence each."""
    recent = [row for row in rows if (row.since or 0) >= RECENT]
    compared = [row for row in rows if row.figures]
    untraced = [row.model_type for row in rows if not row.traced]
    lines = [
        f"traced: {sum(row.traced for row in rows)} of {len(rows)}; since {RECENT}: "
        f"{sum(row.traced for row in recent)} of {len(recent)}",
        f"closed form: {sum(row.closed_form for row in rows)} of {len(rows)}; compared: {len(compared)}, all "
        f"{len(FIGURES)} figures equal: {sum(row.equal for row in compared)}",
    ]
    for i, name in enumerate(FIGURES):
        equal = sum(row.figures[i][0] == row.figures[i][1] for row in compared)
        lines.append(f"{name} equal: {equal} of {len(compared)}")
    if untraced:
        lines.append(f"not traced: {', '.join(untraced)}")
    return lines


def _marks(row: Row) -> list[str]:
    return ["=" if traced == closed else "≠" for traced, closed in row.figures] or [""] * len(FIGURES)


def _notes(row: Row) -> str:
    no_form = "" if row.closed_form or row.why_no_closed_form.startswith("no closed form") else row.why_no_closed_form
    parts = [row.why_not_traced, no_form, row.differences, row.notes]
    return "; ".join(part for part in parts if part)


def _word(yes: bool) -> str:
    return "yes" if yes else "no"
