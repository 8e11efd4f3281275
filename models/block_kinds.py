"""Layers that a search chose one by one (`block_configs` of DeciLM, Llama-Nemotron)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelroof.models.errors import ConfigError
from kernelroof.models.family import Layer
from kernelroof.models.fields import Fields, whole
from kernelroof.models.layers import Linear, Part, attention, join
from kernelroof.models.mlp_kinds import dense_part


def block_part(layer: Layer) -> tuple[Part, str]:
    """The layer that block `index` describes, with its name: either half may be left out or be one matrix."""
    fields, hidden = layer.fields, layer.hidden
    block = fields.per_layer("block_configs", layer.layers)[layer.position]
    mixer, wide = _half(layer, block, "attention"), _half(layer, block, "ffn")
    parts, label = [], "no attention"
    if mixer.get("replace_with_linear"):
        parts.append(Part((Linear("self_attn.linear_attn", hidden, hidden),), vectors=hidden))
        label = "a matrix for attention"
    elif not mixer.get("no_op"):
        parts.append(_attention(layer, mixer))
        label = "full attention"
    if wide.get("replace_with_linear"):
        parts.append(Part((Linear("mlp.linear_mlp", hidden, hidden),), vectors=hidden))
    elif not wide.get("no_op"):
        part = dense_part(layer, width=_width(layer, wide))
        parts.append(part._replace(vectors=part.vectors + hidden))
    return join(*parts), label


def _half(layer: Layer, block: Any, name: str) -> Mapping[str, Any]:
    half = block.get(name) if isinstance(block, Mapping) else None
    if not isinstance(half, Mapping):
        raise ConfigError(
            f"{layer.fields.name}: block_configs has no {name} for layer {layer.position}", "Correct it in the config."
        )
    return half


def _attention(layer: Layer, half: Mapping[str, Any]) -> Part:
    fields, hidden = layer.fields, layer.hidden
    heads = fields.size("num_attention_heads")
    group = whole(half.get("n_heads_in_group"), f"{fields.name}: n_heads_in_group of layer {layer.position}")
    if heads % group:
        raise ConfigError(
            f"{fields.name}: n_heads_in_group of layer {layer.position} is {group}, no divisor of "
            f"num_attention_heads {heads}",
            "Correct it in block_configs.",
        )
    kv_heads, head_dim = heads // group, fields.size("head_dim", default=hidden // heads)
    kv_width = kv_heads * head_dim
    return Part(
        (
            Linear("self_attn.q_proj", hidden, heads * head_dim),
            Linear("self_attn.k_proj", hidden, kv_width),
            Linear("self_attn.v_proj", hidden, kv_width),
            Linear("self_attn.o_proj", heads * head_dim, hidden),
        ),
        vectors=hidden,
        attention=attention(heads, kv_heads, head_dim),
    )


def _width(layer: Layer, half: Mapping[str, Any]) -> int:
    """Two thirds of `ffn_mult` times the model's width, rounded up to a multiple of 256, as DeciLM's code has it."""
    where = Fields(half, f"{layer.fields.name}, block_configs of layer {layer.position}")
    if where.has("intermediate_size"):
        return where.size("intermediate_size")
    factor = where.number("ffn_mult")
    return -(-int(2 * factor * layer.hidden / 3) // 256) * 256
