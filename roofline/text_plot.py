"""A roofline drawn in characters, for terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelroof.roofline.units import fixed, quantity

_COLUMNS = 64
_ROWS = 11


def text_roofline(points: Sequence[tuple[str, str, float]], flop_s: float, byte_s: float) -> list[str]:
    """Draw the roofs and put each point where its intensity meets them.

    Args:
        points: (one-letter mark, name, intensity in FLOP/B), intensity above zero.
        flop_s: compute roof, FLOP/s.
        byte_s: memory roof, B/s.
    """
    ridge = flop_s / byte_s
    low = math.floor(math.log10(min(0.5, *(i for _, _, i in points), ridge)))
    high = math.ceil(math.log10(max(ridge * 4, *(i for _, _, i in points))))
    top = math.log10(flop_s)
    bottom = math.log10(min(byte_s * 10**low, flop_s / 10))

    def column(intensity: float) -> int:
        return round((math.log10(intensity) - low) / (high - low) * (_COLUMNS - 1))

    def row(rate: float) -> int:
        return round((top - math.log10(rate)) / (top - bottom) * (_ROWS - 1))

    canvas = [[" "] * _COLUMNS for _ in range(_ROWS)]
    for x in range(_COLUMNS):
        intensity = 10 ** (low + x / (_COLUMNS - 1) * (high - low))
        y = row(min(flop_s, byte_s * intensity))
        if 0 <= y < _ROWS:
            canvas[y][x] = "─" if intensity >= ridge else "·"
    for mark, _, intensity in points:
        canvas[min(_ROWS - 1, row(min(flop_s, byte_s * intensity)))][column(intensity)] = mark
    labels = {0: quantity(flop_s, "FLOP/s"), _ROWS - 1: quantity(10**bottom, "FLOP/s")}
    width = max(len(t) for t in labels.values())
    lines = [f"{labels.get(y, ''):>{width}} │{''.join(canvas[y]).rstrip()}" for y in range(_ROWS)]
    axis = ["─"] * _COLUMNS
    axis[column(ridge)] = "┴"
    lines.append(f"{'':>{width}} └{''.join(axis)} FLOP/B")
    ticks = [" "] * (_COLUMNS + 8)
    for power in range(low, high + 1):
        text = f"{10**power:g}"
        start = column(10**power)
        ticks[start : start + len(text)] = text
    lines.append(f"{'':>{width}}  {''.join(ticks).rstrip()}")
    named = ", ".join(
        f"{mark} {name} {fixed(i)} FLOP/B ({'compute' if i >= ridge else 'memory'} side)" for mark, name, i in points
    )
    lines.append(f"{'':>{width}}  {named}; ┴ ridge {ridge:.1f}")
    return lines
