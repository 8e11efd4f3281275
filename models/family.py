"""What a model type fixes in code and its config does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kernelroof.models.fields import Fields
from kernelroof.models.layer_types import Pattern

Rule = bool | str
"""A fact, or the config field that decides it."""


class Family(NamedTuple):
    """One row of the table. The defaults describe Llama: root-mean-square norms, gated MLP, no biases.

    qk_norm: norms of queries and keys: "head" (a scale per element of a head), "affine" (scale and bias
        per element of a head), "width" (a scale per element of all heads); `qk_norm_if` is the field that
        switches them on.
    gate: an output gate of attention: "width" (a matrix as wide as the queries), "heads" (one number per
        head), "doubled" (the query matrix is twice as wide).
    sinks: one learned number per head in the attention of "all" layers, or of "windowed" ones.
    dense_experts: transformers runs every expert on every token.
    widen: width of the dense feed-forward over the model's where the config does not give it: a number, or
        the field that holds it.
    halves: a layer is an attention, a state or a feed-forward, never two of them.
    norm: parameters per element of a norm: 1 a scale, 2 also a bias, 0 none; a field decides between 1 and 2.
    norms: norms as wide as the model per layer, `last_norm` one after the last layer.
    extras: readers of `kernelroof.models.extra_kinds` that add what only this family has.
    eager: transformers runs this model with eager attention only (soft-capped scores, sinks).
    explicit_mask: it hands sdpa an explicit mask for any prompt.
    """

    qkv_bias: Rule = False
    output_bias: Rule = False
    mlp_bias: Rule = False
    qk_norm: str = ""
    qk_norm_if: str = ""
    gate: str = ""
    sinks: str = ""
    sink_bits: int | None = None
    fused_qkv: bool = False
    attention_kind: str = ""
    state_kind: str = ""
    mlp: str = "gated"
    fused_mlp: bool = False
    widen: int | str = 0
    mlp_vectors: int = 0
    halves: bool = False
    norms: int = 2
    norm: int | str = 1
    last_norm: bool = True
    dense_experts: bool = False
    router_bits: int | None = None
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    expert_vectors: int = 0
    """Elements per expert beside the router; `wide_expert_vectors` those held in float32."""
    wide_expert_vectors: int = 0
    head_bias: Rule = False
    positions: str = ""
    """The field with the number of learned positions; `position_offset` rows more are held."""
    position_offset: int = 0
    rotary: bool = True
    pattern: Pattern | None = None
    aliases: Mapping[str, str] = {}
    defaults: Mapping[str, Any] = {}
    extras: tuple[str, ...] = ()
    eager: bool = False
    explicit_mask: bool = False
    needs: str = ""
    """A field that must be true: without it the model is no decoder."""
    note: str = ""
    """What was assumed, for model types whose code is not part of transformers."""


class Layer(NamedTuple):
    """One layer that is being read."""

    fields: Fields
    family: Family
    position: int
    kind: str
    layers: int
    latent: bool
    """The cache of a latent attention holds the latent, not expanded heads."""

    @property
    def hidden(self) -> int:
        return self.fields.size("hidden_size")

    @property
    def windowed(self) -> bool:
        return self.kind in ("sliding_attention", "chunked_attention")
