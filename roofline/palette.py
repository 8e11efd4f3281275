"""The colours of kinds and bounds, the same in every picture and page.

Okabe and Ito's palette, which stays apart under the common kinds of colour blindness, for what usually takes
the time; muted tones of other lightness for the rest. A bound also has a shape, so that grey prints tell it.
"""

from __future__ import annotations

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
