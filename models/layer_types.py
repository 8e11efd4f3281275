"""Which kind of layer stands where: from the lists in a config, or from the pattern that its family's code sets.

The names are those of transformers' `layer_types`: full_attention, sliding_attention,
chunked_attention, indexed_attention, linear_attention (any recurrent state), conv, hybrid (a state and
an attention side by side), and for layers that are a feed-forward alone: mlp, moe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelroof.models.errors import ConfigError
from kernelroof.models.fields import Fields, shortened

Pattern = Callable[[Fields, int], Sequence[str]]

KINDS = frozenset(
    {
        "full_attention",
        "sliding_attention",
        "chunked_attention",
        "indexed_attention",
        "linear_attention",
        "conv",
        "hybrid",
        "mlp",
        "moe",
        "none",
    }
)

_OLD_NAMES = {"attention": "full_attention", "mamba": "linear_attention", "recurrent": "linear_attention"}
_LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}


def every(period: int | str, others: str, default: int = 0, last: bool = False) -> Pattern:
    """Full attention in the last layer of each `period` (a number, or the field that holds it), `others` before it.

    With `last`, also in the last layer of all.
    """

    def pattern(fields: Fields, layers: int) -> Sequence[str]:
        n = period if isinstance(period, int) else fields.count(period, default=default)
        full = [(n > 0 and (i + 1) % n == 0) or (last and i == layers - 1) for i in range(layers)]
        return ["full_attention" if here else others for here in full]

    return pattern


def first_of(period: int, others: str) -> Pattern:
    """Full attention in the first layer of each `period`."""
    return lambda _fields, layers: ["full_attention" if i % period == 0 else others for i in range(layers)]


def alternating(first: str, second: str) -> Pattern:
    return lambda _fields, layers: [second if i % 2 else first for i in range(layers)]


def always(kind: str) -> Pattern:
    return lambda _fields, layers: [kind] * layers


def listed(fields: Fields, layers: int) -> Sequence[str]:
    """No pattern: the config must list its layers."""
    return [str(kind) for kind in fields.per_layer("layer_types", layers)]


def qwen_windows(fields: Fields, layers: int) -> Sequence[str]:
    """Windows only where `use_sliding_window` asks for them, and only from layer `max_window_layers` on."""
    if not fields.flag("use_sliding_window") or not fields.has("sliding_window"):
        return ["full_attention"] * layers
    start = fields.count("max_window_layers")
    return ["sliding_attention" if i >= start else "full_attention" for i in range(layers)]


def qwen_moe_windows(fields: Fields, layers: int) -> Sequence[str]:
    """Windows in every second layer below `max_window_layers`."""
    if not fields.flag("use_sliding_window"):
        return ["full_attention"] * layers
    stop = fields.count("max_window_layers")
    return ["sliding_attention" if (i + 1) % 2 and i < stop else "full_attention" for i in range(layers)]


def switched_window(fields: Fields, layers: int) -> Sequence[str]:
    """A window in all layers, where `use_sliding_window` asks for one."""
    on = fields.flag("use_sliding_window") and fields.has("sliding_window")
    return ["sliding_attention" if on else "full_attention"] * layers


def any_window(fields: Fields, layers: int) -> Sequence[str]:
    """A window in all layers where there is one, unless it is switched off."""
    on = fields.has("sliding_window") and fields.flag("use_sliding_window", default=True)
    return ["sliding_attention" if on else "full_attention"] * layers


def unrotated(kind: str) -> Pattern:
    """`kind` where positions are rotated or, for windows without rotation, where they are not (`no_rope_layers`)."""

    def pattern(fields: Fields, layers: int) -> Sequence[str]:
        step = fields.size("no_rope_layer_interval", default=4)
        given = bool(fields.get("no_rope_layers"))
        rotated = fields.switches("no_rope_layers", layers) if given else [(i + 1) % step != 0 for i in range(layers)]
        if kind == "chunked_attention":
            on = fields.has("attention_chunk_size")
            return [kind if on and rotated[i] else "full_attention" for i in range(layers)]
        on = fields.flag("use_sliding_window") and fields.has("sliding_window")
        return [kind if on and not rotated[i] else "full_attention" for i in range(layers)]

    return pattern


def chosen(field: str, others: str, default: str = "full_attention") -> Pattern:
    """Full attention in the layers that `field` lists, `others` elsewhere; without the field `default` everywhere."""

    def pattern(fields: Fields, layers: int) -> Sequence[str]:
        if not fields.has(field):
            return [default] * layers
        listed = set(fields.numbers(field))
        return ["full_attention" if i in listed else others for i in range(layers)]

    return pattern


def periodic(fields: Fields, layers: int) -> Sequence[str]:
    """Attention at `attn_layer_offset` of each `attn_layer_period`, a state elsewhere."""
    period, offset = fields.size("attn_layer_period"), fields.count("attn_layer_offset")
    return ["full_attention" if i % period == offset else "linear_attention" for i in range(layers)]


_MOST_LAYERS = 10_000
"""Every layer is read by itself, so that absurd numbers of them would take forever."""


def layer_count(fields: Fields) -> int:
    """Number of layers, which some hybrids say only by their pattern.

    Raises:
        ConfigError: none, or absurdly many.
    """
    field, count = "num_hidden_layers", None
    if fields.has("hybrid_override_pattern"):
        field = "hybrid_override_pattern"
        count = len(str(fields.get(field)))
    elif not fields.has("num_hidden_layers"):
        for listed in ("layer_types", "layers_block_type"):
            if isinstance(fields.get(listed), (list, tuple)):
                field, count = listed, len(fields.get(listed))
                break
    if count is None:
        count = fields.size("num_hidden_layers")
    if not 1 <= count <= _MOST_LAYERS:
        raise ConfigError(
            f"{fields.name}: {fields.named(field)} says {count} layers, not from 1 to {_MOST_LAYERS}",
            "Correct it in the config.",
        )
    return count


def layer_types(fields: Fields, layers: int, pattern: Pattern | None) -> tuple[str, ...]:
    """The kind of every layer.

    Raises:
        ConfigError: a kind whose work and cache are not known, by the field that names it.
    """
    if fields.has("hybrid_override_pattern"):
        field = "hybrid_override_pattern"
        found: Sequence[str] = [_LETTERS.get(c, c) for c in str(fields.get(field))]
    elif fields.has("layer_types") or fields.has("layers_block_type"):
        field = "layer_types" if fields.has("layer_types") else "layers_block_type"
        found = fields.per_layer(field, layers)
    elif fields.has("attn_type_list"):
        # MiniMax's own configs: 1 is softmax attention, 0 linear attention.
        field = "attn_type_list"
        found = ["full_attention" if kind else "linear_attention" for kind in fields.switches(field, layers)]
    elif fields.has("hybrid_layer_pattern"):
        field = "hybrid_layer_pattern"
        found = ["sliding_attention" if kind else "full_attention" for kind in fields.switches(field, layers)]
    else:
        field = "sliding_window_pattern" if pattern else "sliding_window"
        found = (pattern or any_window)(fields, layers)
    words = [kind if isinstance(kind, str) else shortened(kind) for kind in found]
    named = tuple(_OLD_NAMES.get(kind, kind) for kind in words)
    unknown = sorted({kind for kind in named if kind not in KINDS})
    if unknown:
        raise ConfigError(
            f"{fields.name}: {field} names layers of kind {', '.join(unknown[:5])}, whose cache the closed form does "
            "not know",
            "`kernelroof profile` traces the model itself, where transformers knows it.",
        )
    return named
