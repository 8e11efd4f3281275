"""The colours of kinds and bounds, the same in every picture and page.

Okabe and Ito's palette, which stays apart under the common kinds of colour blindness, for what usually takes
the time; muted tones of other lightness for the rest. A bound also has a shape, so that grey prints tell it.
"""

from __future__ import annotations

from typing import Any

WHITE, DARK = "#ffffff", "#181c21"
"""What pages are drawn on, in either theme."""
LEAST_CONTRAST = 3.0
"""Of a mark against what it lies on."""
KINDS = {
    "mlp": "#0072B2",
    "projection": "#E69F00",
    "attention": "#D55E00",
    "head": "#009E73",
    "norm": "#CC79A7",
    "cache": "#56B4E9",
    "embedding": "#F0E442",
    "rotary": "#882255",
    "residual": "#B5B56A",
    "sampling": "#332288",
    "other": "#1C1C1C",
}
"""Kind of module (`kernelroof.models.kinds`) -> colour."""
KINDS_ON_DARK = {**KINDS, "rotary": "#D90D51", "sampling": "#A36EFF", "other": "#F0F0F0"}
"""The same on a dark page, where the darkest would not be seen."""
BOUNDS = {
    "compute": "#009E73",
    "memory": "#0072B2",
    "latency": "#E69F00",
    "inefficient": "#D55E00",
    "unknown": "#333333",
}
"""Bound -> colour."""
SHAPES = {"compute": "triangle", "memory": "circle", "latency": "diamond", "inefficient": "rect", "unknown": "pin"}
"""Bound -> name of its shape."""


KIND_MARKERS = {
    "mlp": "o",
    "projection": "s",
    "attention": "p",
    "head": "D",
    "norm": "P",
    "cache": "X",
    "embedding": "8",
    "rotary": "d",
    "residual": "h",
    "sampling": "H",
    "other": ".",
}
"""Kind of module -> Matplotlib's marker, filled; no triangles, which stand for points off the axes."""
BOUND_MARKERS = {"compute": "s", "memory": "o", "latency": "D", "inefficient": "p", "unknown": "X"}
"""Bound -> Matplotlib's marker."""


def kind_marker(kind: str) -> str:
    """The marker of a kind of module."""
    return KIND_MARKERS.get(kind, KIND_MARKERS["other"])


def bound_marker(bound: str) -> str:
    """The marker of a bound."""
    return BOUND_MARKERS.get(bound, BOUND_MARKERS["unknown"])


def kind_colour(kind: str) -> str:
    """The colour of a kind of module; unknown kinds are grey."""
    return KINDS.get(kind, KINDS["other"])


def kind_edge(kind: str) -> str:
    """The colour of a kind's outline on white: its own, darkened until it is seen there."""
    tint = kind_colour(kind)
    shares = [channel / 255 for channel in bytes.fromhex(tint[1:])]
    for percent in range(100, 0, -2):
        made = "#" + "".join(f"{round(255 * share * percent / 100):02X}" for share in shares)
        if contrast(made, WHITE) >= LEAST_CONTRAST:
            return made
    raise AssertionError(tint)


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21, as WCAG 2 has it."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def page_colours() -> dict[str, Any]:
    """Colours and shapes as the scripts of pages have them."""
    edges = {kind: kind_edge(kind) for kind in KINDS}
    return {"kinds": KINDS, "dark": KINDS_ON_DARK, "edges": edges, "bounds": BOUNDS, "shapes": SHAPES}


def _luminance(colour: str) -> float:
    shares = [channel / 255 for channel in bytes.fromhex(colour[1:])]
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
