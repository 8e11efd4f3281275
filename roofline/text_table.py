"""Plain tables for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence

WIDTH = 110
"""Columns of a terminal that tables keep to."""
_SHORTEST = 10


def text_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[int] = (),
    names: Collection[int] = (),
) -> str:
    """Columns as wide as their widest cell, to the right but for those in `left`, a rule under the header.

    names: columns that lose the beginning of long cells where the table is wider than `WIDTH`, the widest first:
    what tells models and GPUs apart is mostly at their ends.
    """
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    between = 2 * (len(widths) - 1)
    while names and (excess := sum(widths) + between - WIDTH) > 0:
        widest = max(names, key=lambda i: widths[i])
        least = max(_SHORTEST, len(header[widest]))
        if widths[widest] <= least:
            break
        # No further than the next widest, so that several long columns share the loss.
        others = [widths[i] for i in names if widths[i] < widths[widest]]
        widths[widest] = max(widths[widest] - excess, least, min(max(others, default=0), widths[widest] - 1))

    def cell(i: int, text: str) -> str:
        if len(text) > widths[i]:
            text = f"…{text[1 - widths[i] :]}"
        return text.ljust(widths[i]) if i in left else text.rjust(widths[i])

    lines = ["  ".join(cell(i, text) for i, text in enumerate(row)).rstrip() for row in (header, *rows)]
    lines.insert(1, "─" * (sum(widths) + between))
    return "\n".join(lines)
