"""Readers of layers whose memory is a state of fixed size: state-space models and linear attention.

To add a kind, add a function with `@_kind(name)`; a family names it in `state_kind`, or `state_part`
recognises it by its fields. `scan_flops` is one pass over the state per token: a decay of every element
by a multiply-add with the new outer product (3 FLOP: multiply, multiply, add) and its product with the
read vector (2); the delta rule also reads before it writes (2 more). The causal convolution before it
is 2 FLOP per channel and tap.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelroof.models.errors import ConfigError
from kernelroof.models.family import Layer
from kernelroof.models.layers import Linear, Part, State

Reader = Callable[[Layer], Part]
_READERS: dict[str, Reader] = {}

_PASS = 5
_DELTA_PASS = 7
_DELTA_CHUNK = 64
"""Tokens that transformers' own code of the delta rule computes at once."""


def _kind(name: str) -> Callable[[Reader], Reader]:
    def register(reader: Reader) -> Reader:
        _READERS[name] = reader
        return reader

    return register


def state_part(layer: Layer) -> Part:
    """The recurrent part of a layer, by its family or by its fields."""
    fields = layer.fields
    kind = layer.family.state_kind
    if not kind and layer.kind == "conv":
        kind = "short_conv"
    if not kind:
        signs = (
            ("linear_num_value_heads", "gated_delta"),
            ("linear_num_heads", "kimi_delta"),
            ("mamba_num_heads", "mamba2"),
            ("mamba_n_heads", "mamba2"),
            ("mamba_dt_rank", "mamba"),
            ("time_step_rank", "mamba"),
        )
        kind = next((k for f, k in signs if fields.has(f)), "")
    if not kind:
        raise ConfigError(
            f"{fields.name}: layer {layer.position} is a {layer.kind} layer, and no field of the config says how large "
            "its state is (linear_num_value_heads, mamba_num_heads, mamba_dt_rank, …)",
            "Give the model's own config.json.",
        )
    return _READERS[kind](layer)


def _state(layer: Layer, elements: int, channels: int, taps: int, bits: int | None, per_element: int = _PASS) -> State:
    return State(elements, channels * taps, bits, per_element * elements + 2 * channels * taps)


@_kind("mamba")
def mamba(layer: Layer) -> Part:
    """A selective state-space layer (Mamba): a state of `state_size` elements per channel."""
    fields, hidden = layer.fields, layer.hidden
    inner = fields.either("mamba_expand", "expand") * hidden
    size = fields.either("mamba_d_state", "state_size")
    taps = fields.either("mamba_d_conv", "conv_kernel")
    rank = -(-hidden // 16)
    for field in ("mamba_dt_rank", "time_step_rank"):
        if fields.has(field) and fields.get(field) != "auto":
            rank = fields.size(field)
    bias = fields.flag("mamba_proj_bias") or fields.flag("use_bias")
    conv_bias = fields.flag(fields.first(("mamba_conv_bias", "use_conv_bias")) or "use_conv_bias")
    linears = (
        Linear("mamba.in_proj", hidden, 2 * inner, bias),
        Linear("mamba.x_proj", inner, rank + 2 * size),
        Linear("mamba.dt_proj", rank, inner, True),
        Linear("mamba.out_proj", inner, hidden, bias),
    )
    vectors = inner * (size + 1 + taps + conv_bias)
    if "normed_scan" in layer.family.extras:
        vectors += rank + 2 * size
    return Part(
        linears,
        vectors,
        state=_state(layer, inner * size, inner, taps, 32),
        inner=4 * inner,
        # Each token's decay, input and their product, a whole state each; the input, its step and the result.
        inner_wide=3 * inner * size + 4 * inner,
    )


@_kind("mamba2")
def mamba2(layer: Layer) -> Part:
    """A state-space dual layer (Mamba 2): heads of `head_dim` channels, each with `state_size` elements per channel."""
    fields, hidden = layer.fields, layer.hidden
    heads = fields.either("mamba_num_heads", "mamba_n_heads", "num_heads")
    size = fields.either("ssm_state_size", "mamba_d_state", "state_size")
    groups = fields.either("mamba_n_groups", "n_groups")
    taps = fields.either("mamba_d_conv", "conv_kernel")
    width = next((f for f in ("mamba_head_dim", "mamba_d_head", "head_dim") if fields.has(f)), "mamba_head_dim")
    if fields.has("mamba_d_ssm"):
        inner = fields.size("mamba_d_ssm")
    elif fields.get(width) == "auto":
        inner = fields.size("mamba_expand") * hidden
    else:
        inner = heads * fields.size(width)
    channels = inner + 2 * groups * size
    bias = fields.flag("mamba_proj_bias") or fields.flag("use_bias")
    conv_bias = fields.flag(fields.first(("mamba_conv_bias", "use_conv_bias")) or "use_conv_bias")
    linears = (
        Linear("mamba.in_proj", hidden, inner + channels + heads, bias),
        Linear("mamba.out_proj", inner, hidden, fields.flag("projectors_bias", bias)),
    )
    vectors = 3 * heads + channels * (taps + conv_bias) + fields.flag("mamba_rms_norm", True) * inner
    chunk = fields.size("chunk_size", "mamba_chunk_size", default=256)
    return Part(
        linears,
        vectors,
        state=_state(layer, inner * size, channels, taps, 32),
        inner=inner + channels,
        # Scores, decays and their product within each chunk; B, C and decayed B by head; seven of the inputs' size
        # (with and without decay, result by parts and whole); each chunk's state three times.
        inner_wide=3 * heads * chunk + 3 * heads * size + 7 * inner + 3 * inner * size // chunk,
    )


@_kind("gated_delta")
def gated_delta(layer: Layer) -> Part:
    """A gated delta rule (Qwen3-Next): value heads share key heads; the state is key width by value width per head."""
    fields, hidden = layer.fields, layer.hidden
    heads, key_heads = fields.size("linear_num_value_heads"), fields.size("linear_num_key_heads")
    key_dim, value_dim = fields.size("linear_key_head_dim"), fields.size("linear_value_head_dim")
    taps = fields.size("linear_conv_kernel_dim")
    keys, values = key_heads * key_dim, heads * value_dim
    channels = 2 * keys + values
    linears = (
        Linear("linear_attn.in_proj_qkv", hidden, channels),
        Linear("linear_attn.in_proj_z", hidden, values),
        Linear("linear_attn.in_proj_ba", hidden, 2 * heads),
        Linear("linear_attn.out_proj", values, hidden),
    )
    return Part(
        linears,
        vectors=2 * heads + channels * taps + value_dim,
        state=_state(layer, heads * key_dim * value_dim, channels, taps, 32, _DELTA_PASS),
        inner=channels,
        # Decays, scores and the system of equations within each chunk; queries, keys and values, scaled and not.
        inner_wide=heads * (3 * _DELTA_CHUNK + 5 * key_dim + 5 * value_dim),
    )


@_kind("kimi_delta")
def kimi_delta(layer: Layer) -> Part:
    """Kimi's delta rule: a decay per channel, from a matrix of low rank, and an output gate of low rank."""
    fields, hidden = layer.fields, layer.hidden
    heads, width = fields.size("linear_num_heads"), fields.size("linear_head_dim")
    taps = fields.size("linear_conv_kernel_dim")
    wide = heads * width
    linears = (
        *(Linear(f"self_attn.{n}_proj", hidden, wide) for n in "qkv"),
        Linear("self_attn.forget_gate.f_a_proj", hidden, width),
        Linear("self_attn.forget_gate.f_b_proj", width, wide),
        Linear("self_attn.b_proj", hidden, heads),
        Linear("self_attn.g_a_proj", hidden, width),
        Linear("self_attn.g_b_proj", width, wide),
        Linear("self_attn.o_proj", wide, hidden),
    )
    return Part(
        linears,
        vectors=heads + 3 * wide * taps + width,
        wide_vectors=wide,
        state=_state(layer, heads * width * width, 3 * wide, taps, 32, _DELTA_PASS),
        inner=6 * wide,
    )


@_kind("lightning")
def lightning(layer: Layer) -> Part:
    """Lightning attention (MiniMax): a fixed decay per head, no convolution, a gated and normed output."""
    fields, hidden = layer.fields, layer.hidden
    heads = fields.size("num_attention_heads")
    width = fields.size("head_dim", default=max(hidden // heads, 1))
    wide = heads * width
    linears = (
        Linear("self_attn.qkv_proj", hidden, 3 * wide),
        Linear("self_attn.out_proj", wide, hidden),
        Linear("self_attn.output_gate", hidden, wide),
    )
    return Part(linears, vectors=wide, state=_state(layer, wide * width, 0, 0, None), inner=5 * wide)


@_kind("gated_kimi_delta")
def gated_kimi_delta(layer: Layer) -> Part:
    """Bailing's delta rule: Kimi's with full-rank gates, and its small parameters in float32."""
    fields, hidden = layer.fields, layer.hidden
    heads, width = fields.size("num_attention_heads"), fields.size("linear_head_dim", "head_dim")
    taps = fields.either("short_conv_kernel_size", "linear_conv_kernel_dim")
    wide = heads * width
    names = ("q_proj", "k_proj", "v_proj", "forget_gate.f_proj", "g_proj")
    linears = (
        *(Linear(f"self_attn.{n}", hidden, wide) for n in names),
        Linear("self_attn.b_proj", hidden, heads),
        Linear("self_attn.o_proj", wide, hidden),
    )
    return Part(
        linears,
        vectors=width,
        wide_vectors=3 * wide * taps + heads + wide,
        state=_state(layer, heads * width * width, 3 * wide, taps, 32, _DELTA_PASS),
        inner=6 * wide,
    )


@_kind("short_conv")
def short_conv(layer: Layer) -> Part:
    """A gated short convolution (LFM2): its memory is the last `conv_L_cache` inputs."""
    fields, hidden = layer.fields, layer.hidden
    taps, bias = fields.size("conv_L_cache"), fields.flag("conv_bias")
    linears = (Linear("conv.in_proj", hidden, 3 * hidden, bias), Linear("conv.out_proj", hidden, hidden, bias))
    return Part(linears, hidden * (taps + bias), state=_state(layer, 0, hidden, taps, None), inner=4 * hidden)
