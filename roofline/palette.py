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
    "residual": "#999933",
    "sampling": "#332288",
    "other": "#8A8A8A",
}
"""Kind of module (`kernelroof.models.kinds`) -> colour."""
BOUNDS = {
    "compute": "#009E73",
    "memory": "#0072B2",
    "latency": "#E69F00",
    "inefficient": "#D55E00",
    "unknown": "#8A8A8A",
}
"""Bound -> colour."""
SHAPES = {"compute": "triangle", "memory": "circle", "latency": "diamond", "inefficient": "rect", "unknown": "pin"}
"""Bound -> name of its shape."""


def kind_colour(kind: str) -> str:
    """The colour of a kind of module; unknown kinds are grey."""
    return KINDS.get(kind, KINDS["other"])
