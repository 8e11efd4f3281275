"""Layers from a config: each read by the readers of its kinds, those that are alike put together."""

from __future__ import annotations

from typing import Any

from kernelroof.models.attention_kinds import attention_part
from kernelroof.models.block_kinds import block_part
from kernelroof.models.extra_kinds import extra_parts
from kernelroof.models.family import Family, Layer
from kernelroof.models.fields import Fields
from kernelroof.models.layer_types import layer_types
from kernelroof.models.layers import LayerGroup, Part, join
from kernelroof.models.mlp_kinds import feed_forward
from kernelroof.models.state_kinds import state_part


def norm_elements(fields: Fields, family: Family) -> int:
    """Parameters per element of a norm."""
    if isinstance(family.norm, int):
        return family.norm
    return 1 + fields.rule(family.norm)


def layer_groups(fields: Fields, family: Family, layers: int, latent: bool) -> tuple[LayerGroup, ...]:
    """All layers, those that are alike together, in the order in which they first appear."""
    kinds = layer_types(fields, layers, family.pattern)
    found: dict[tuple[Part, str], list[int]] = {}
    known: dict[tuple[Any, ...], tuple[Part, str]] = {}
    for index, kind in enumerate(kinds):
        layer = Layer(fields.of_layer(index), family, index, kind, layers, latent)
        part = _layer_part(layer)
        part = known.setdefault(part, part)
        found.setdefault(part, []).append(index)
    return tuple(
        LayerGroup(
            indices=tuple(indices),
            linears=part.linears,
            vectors=part.vectors,
            attention=part.attention,
            state=part.state,
            inner=part.inner,
            inner_wide=part.inner_wide,
            wide_vectors=part.wide_vectors,
            products=part.products,
            label=label,
        )
        for (part, label), indices in found.items()
    )


_LABELS = {
    "full_attention": "full attention",
    "sliding_attention": "sliding attention",
    "chunked_attention": "chunked attention",
    "indexed_attention": "indexed attention",
    "linear_attention": "linear attention",
    "conv": "short convolution",
    "hybrid": "state and attention side by side",
    "mlp": "feed-forward alone",
    "moe": "experts alone",
}


def _layer_part(layer: Layer) -> tuple[Part, str]:
    """All of one layer, with a name for its kind."""
    if layer.fields.has("block_configs"):
        return block_part(layer)
    norms = Part(vectors=layer.family.norms * norm_elements(layer.fields, layer.family) * layer.hidden)
    if layer.kind in ("mlp", "moe"):
        return join(norms, feed_forward(layer)), _LABELS[layer.kind]
    parts = [norms]
    if layer.kind in ("linear_attention", "conv", "hybrid"):
        parts.append(state_part(layer))
    if layer.kind not in ("linear_attention", "conv"):
        parts.append(attention_part(layer))
    if not layer.family.halves:
        parts.append(feed_forward(layer))
    return join(*parts, *extra_parts(layer)), _LABELS[layer.kind]
