"""Readers of the feed-forward half of a layer: dense or routed to experts, gated or plain."""

from __future__ import annotations

from kernelroof.models.errors import ConfigError
from kernelroof.models.family import Layer
from kernelroof.models.fields import whole
from kernelroof.models.layers import Linear, Part, join

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_USED = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts", "moe_top_k")
_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
_SHARED_WIDTH = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "share_expert_dim",
    "shared_intermediate_size",
)


def feed_forward(layer: Layer) -> Part:
    """The feed-forward of a layer: experts where its position says so."""
    return routed_part(layer) if is_routed(layer) else dense_part(layer)


def is_routed(layer: Layer) -> bool:
    """Whether this layer has experts, by whichever of the known fields the config has."""
    fields, i = layer.fields, layer.position
    if layer.kind in ("mlp", "moe"):
        return layer.kind == "moe"
    if layer.family.mlp == "beside_experts" or fields.either(*_EXPERTS, default=0) == 0:
        return False
    if fields.has("mlp_layer_types"):
        kind = fields.per_layer("mlp_layer_types", layer.layers)[i]
        if kind not in ("dense", "sparse"):
            raise ConfigError(
                f"{fields.name}: mlp_layer_types has {kind!r}, which the closed form does not know",
                "It knows dense and sparse.",
            )
        return bool(kind == "sparse")
    if fields.has("moe_layers_enum"):
        return str(i) in str(fields.get("moe_layers_enum")).replace(" ", "").split(",")
    if fields.has("moe_layers"):
        return i in fields.numbers("moe_layers")
    if fields.has("interleave_moe_layer_step"):
        step = fields.count("interleave_moe_layer_step")
        return step > 0 and (i + 1) % step == 0
    if isinstance(fields.get("moe_layer_freq"), list):
        return fields.switches("moe_layer_freq", layer.layers)[i]
    if fields.has("first_k_dense_replace") or fields.has("num_dense_layers"):
        step = fields.size("moe_layer_freq", default=1)
        return i >= fields.either("first_k_dense_replace", "num_dense_layers") and i % step == 0
    if fields.has("decoder_sparse_step"):
        step = fields.count("decoder_sparse_step")
        return step > 0 and i not in fields.numbers("mlp_only_layers") and (i + 1) % step == 0
    if fields.has("expert_layer_period"):
        return i % fields.size("expert_layer_period") == fields.count("expert_layer_offset")
    if fields.has("moe_layer_start_index"):
        last = fields.get("moe_layer_end_index")
        last = layer.layers - 1 if last in (None, -1) else fields.count("moe_layer_end_index")
        step = fields.size("moe_layer_interval", default=1)
        return (i + 1) % step == 0 and fields.count("moe_layer_start_index") <= i <= last
    return True


def dense_part(layer: Layer, name: str = "mlp", width: int | None = None) -> Part:
    """One feed-forward that every token meets."""
    fields, family, hidden = layer.fields, layer.family, layer.hidden
    if width is None:
        width = _dense_width(layer)
    bias = fields.rule(family.mlp_bias)
    down = Linear(f"{name}.down_proj", width, hidden, bias)
    if family.mlp == "plain":
        up: tuple[Linear, ...] = (Linear(f"{name}.up_proj", hidden, width, bias),)
    elif family.fused_mlp:
        up = (Linear(f"{name}.gate_up_proj", hidden, 2 * width, bias),)
    else:
        up = (Linear(f"{name}.gate_proj", hidden, width, bias), Linear(f"{name}.up_proj", hidden, width, bias))
    return Part((*up, down), vectors=family.mlp_vectors, inner=(2 if family.mlp == "plain" else 3) * width)


def _dense_width(layer: Layer) -> int:
    fields = layer.fields
    if fields.has("block_auto_adjust_ff_dim") or fields.has("block_multiple_of"):
        return _adjusted_width(layer)
    widen = layer.family.widen
    ratio = widen if isinstance(widen, int) else fields.size(widen)
    if isinstance(fields.get("intermediate_size"), list):
        each = fields.per_layer("intermediate_size", layer.layers)
        return whole(each[layer.position], f"{fields.name}: intermediate_size of layer {layer.position}")
    wide = fields.size(
        "dense_intermediate_size",
        "intermediate_size_mlp",
        "intermediate_size",
        default=ratio * layer.hidden if ratio else None,
    )
    shared = layer.position >= layer.layers - fields.count("num_kv_shared_layers", default=0)
    return wide * (2 if shared and fields.flag("use_double_wide_mlp") else 1)


def _adjusted_width(layer: Layer) -> int:
    """LFM2's width: two thirds of what the config says, times a factor, rounded up to a multiple."""
    fields = layer.fields
    wide = fields.size("intermediate_size")
    if not fields.flag("block_auto_adjust_ff_dim"):
        return wide
    wide = int(fields.number("block_ffn_dim_multiplier", default=1) * int(2 * wide / 3))
    multiple = fields.size("block_multiple_of")
    return multiple * ((wide + multiple - 1) // multiple)


def routed_part(layer: Layer, name: str = "mlp") -> Part:
    """Experts of which each token meets the top k, their router, and experts that every token meets."""
    fields, family, hidden = layer.fields, layer.family, layer.hidden
    experts, used = fields.either(*_EXPERTS), fields.either(*_USED)
    if used > experts:
        raise ConfigError(
            f"{fields.name}: num_experts_per_tok is {used}, more than the {experts} experts there are",
            "Correct it in the config.",
        )
    width = fields.size("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
    gated = family.mlp != "plain"
    linears = [
        Linear(f"{name}.gate", hidden, experts, family.router_bias, bits=family.router_bits),
        Linear(
            f"{name}.experts.{'gate_up_proj' if gated else 'up_proj'}",
            hidden,
            (2 if gated else 1) * width,
            family.expert_bias,
            copies=experts,
            used=used,
            dense=family.dense_experts,
        ),
        Linear(
            f"{name}.experts.down_proj",
            width,
            hidden,
            family.expert_bias,
            copies=experts,
            used=used,
            dense=family.dense_experts,
        ),
    ]
    if family.shared_gate:
        linears.append(Linear(f"{name}.shared_expert_gate", hidden, 1))
    narrow, wide = _dispatched(hidden, width, gated, family.router_bits)
    routed = Part(
        tuple(linears),
        vectors=experts * family.expert_vectors,
        wide_vectors=experts * family.wide_expert_vectors,
        inner=experts * 3 * width if family.dense_experts else used * narrow,
        inner_wide=0 if family.dense_experts else used * wide,
    )
    shared = _shared_width(layer, width)
    if not shared:
        return routed
    return join(routed, dense_part(layer, f"{name}.shared_experts", shared)._replace(vectors=0))


def _dispatched(hidden: int, width: int, gated: bool, router_bits: int | None) -> tuple[int, int]:
    """Elements alive at the widest moment per token and expert that it meets, and those of them in float32.

    transformers groups tokens by expert: there are both products' results beside the copied input; later copied
    input, result, weighted result and its copy in the tokens' order. Weights of a router in float32 make the last
    two float32 too.
    """
    inside = hidden + (4 if gated else 2) * width
    if router_bits == 32:
        return (inside, 0) if inside > 6 * hidden else (2 * hidden, 2 * hidden)
    return max(4 * hidden, inside), 0


def _shared_width(layer: Layer, width: int) -> int:
    """Width of what every token meets beside the routed experts; 0 without."""
    fields = layer.fields
    given, named = fields.first(_SHARED_WIDTH), fields.first(_SHARED)
    count = None if named is None else fields.count(named)
    if given is not None:
        if count == 0:
            return 0
        each = fields.count(given)
        return each * (count or 1) if given == "moe_shared_expert_intermediate_size" else each
    return (count or 0) * width
