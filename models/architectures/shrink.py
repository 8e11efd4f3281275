"""A config made small: fewer layers, every kind of layer kept. Widths stay, they cost nothing on the meta device.

What is cut: the number of layers, of the language model and of every tower beside it, and the lists that
have one entry per layer. The first layers stay, as many as it takes to meet each kind once and what comes
after it. Experts, heads, windows and the vocabulary are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEAST_LAYERS = 3
MOST_LAYERS = 12

_COUNTS = (
    "num_hidden_layers",
    "num_layers",
    "n_layer",
    "n_layers",
    "decoder_layers",
    "num_decoder_layers",
    "num_blocks",
    "encoder_layers",
    "num_encoder_layers",
    "depth",
)
"""Names of the number of layers, in order of precedence; a config that has several means one by them."""
_PERIODS = ("period", "interval", "every", "frequency", "freq", "pattern")
"""Parts of the name of an integer that says after how many layers a pattern repeats."""
_STARTS = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", "n_dense_layers")
"""Integers that say how many layers differ from those after them."""


def shrink(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with fewer layers, and each config inside it too."""
    small = {k: shrink(v) if isinstance(v, Mapping) and _is_config(v) else v for k, v in config.items()}
    counts = [name for name in _COUNTS if _whole(small.get(name)) > 0]
    if not counts:
        return small
    whole = _whole(small[counts[0]])
    kept = min(whole, max(LEAST_LAYERS, min(MOST_LAYERS, _needed(small, whole))))
    for name, value in small.items():
        if name in counts:
            small[name] = min(kept, _whole(value))
        elif _per_layer(value, whole):
            small[name] = list(value)[:kept] if not isinstance(value, str) else value[:kept]
        elif name == "per_layer_config" and isinstance(value, Mapping):
            small[name] = {layer: changes for layer, changes in value.items() if int(layer) < kept}
    return small


def _needed(config: Mapping[str, Any], whole: int) -> int:
    """Layers from the first that show every kind once."""
    needed = [LEAST_LAYERS]
    for name, value in config.items():
        if _per_layer(value, whole):
            kinds = [str(kind) for kind in value]
            # One more than the last new kind, so that a layer of each kind has a follower.
            needed.append(max(kinds.index(kind) for kind in set(kinds)) + 1)
        elif name in _STARTS:
            needed.append(_whole(value) + 1)
        elif any(part in name for part in _PERIODS) and _whole(value) > 1:
            # Where the period is one of layers, layers that share weights with one a period before need both.
            needed.append(_whole(value) * (2 if "layer_period" in name else 1))
    return max(needed)


def _is_config(value: Mapping[str, Any]) -> bool:
    return any(name in value for name in _COUNTS)


def _per_layer(value: Any, whole: int) -> bool:
    """Whether a value has one entry per layer (a string, one letter)."""
    return isinstance(value, (list, tuple, str)) and len(value) == whole > 1


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
