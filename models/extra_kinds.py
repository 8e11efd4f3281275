"""What only some families add to every layer, beside attention or state and feed-forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kernelroof.models.errors import ConfigError
from kernelroof.models.family import Family, Layer
from kernelroof.models.fields import Fields
from kernelroof.models.layers import Linear, Part
from kernelroof.models.mlp_kinds import is_routed, routed_part

Reader = Callable[[Layer], Part]

_MOST_STREAMS = 1_000
"""Each has matrices of its own, which are listed one by one."""


def _per_layer_inputs(layer: Layer) -> Part:
    """Gemma 3n and 4: a small embedding per layer, gated into the stream."""
    width = layer.fields.count("hidden_size_per_layer_input", default=0)
    if not width:
        return Part()
    hidden = layer.hidden
    return Part(
        (Linear("per_layer_input_gate", hidden, width), Linear("per_layer_projection", width, hidden)), vectors=hidden
    )


def _experts_beside(layer: Layer) -> Part:
    """Gemma 4: routed experts beside the dense feed-forward, with three norms more and scales on the router."""
    if not layer.fields.flag("enable_moe_block"):
        return Part()
    hidden = layer.hidden
    part = routed_part(layer, "experts")
    return part._replace(vectors=part.vectors + 3 * hidden + hidden + layer.fields.size("num_experts"))


def _alternating_updates(layer: Layer) -> Part:
    """Gemma 3n: several streams, predicted and corrected by small matrices, and a low-rank residual branch."""
    fields, hidden = layer.fields, layer.hidden
    streams, rank = fields.size("altup_num_inputs"), fields.size("laurel_rank")
    return Part(
        (
            Linear("altup.correction_coefs", streams, streams),
            Linear("altup.prediction_coefs", streams, streams * streams),
            Linear("altup.modality_router", hidden, streams, used=2),
            Linear("laurel.linear_left", hidden, rank),
            Linear("laurel.linear_right", rank, hidden),
        ),
        vectors=3 * hidden,
        products=2 * hidden * streams * streams,
    )


def _expert_norm(layer: Layer) -> Part:
    """A.X K1: a norm after the experts."""
    return Part(vectors=layer.hidden if is_routed(layer) else 0)


def _head_scales(layer: Layer) -> Part:
    """One number per head (a bias of the output gate)."""
    return Part(vectors=layer.fields.size("num_attention_heads"))


def _inner_norms(layer: Layer) -> Part:
    """BitNet: norms before the last matrix of either half."""
    return Part(vectors=layer.hidden + layer.fields.size("intermediate_size"))


def _post_norms(layer: Layer) -> Part:
    """HyperCLOVA X: norms after either half, where the config asks for them."""
    return Part(vectors=2 * layer.hidden if layer.fields.flag("use_post_norm") else 0)


def _falcon_norms(layer: Layer) -> Part:
    """Falcon: a second norm unless both halves share one."""
    fields = layer.fields
    if fields.flag("new_decoder_architecture"):
        second = fields.count("num_ln_in_parallel_attn", default=2) == 2
    else:
        second = not fields.flag("parallel_attn")
    return Part(vectors=2 * layer.hidden if second else 0)


def _sandwich_norms(layer: Layer) -> Part:
    """LFM3: norms after either half too, and an output gate of one number per head where it attends."""
    vectors = 2 * layer.hidden if layer.fields.flag("use_sandwich_norm") else 0
    if layer.kind == "conv" or not layer.fields.flag("use_attention_gate"):
        return Part(vectors=vectors)
    return Part((Linear("self_attn.g_proj", layer.hidden, layer.fields.size("num_attention_heads")),), vectors)


def _first_norm_missing(layer: Layer) -> Part:
    """ModernBERT: the norm of the embedding stands for that of the first attention."""
    return Part(vectors=-layer.hidden if layer.position == 0 else 0)


def _last_bias_only(layer: Layer) -> Part:
    """GPT-NeoX Japanese: only the last layer's attention has a bias."""
    return Part(vectors=layer.hidden if layer.position == layer.layers - 1 else 0)


def _cross_attention(layer: Layer) -> Part:
    """The attention over an encoder that the decoder of an encoder-decoder holds, and does not run without one."""
    fields, hidden = layer.fields, layer.hidden
    bias = fields.rule(layer.family.qkv_bias)
    names = ("q_proj", "v_proj", "out_proj", "k_proj")
    keyed = bias and "unbiased_keys" not in layer.family.extras
    linears = [Linear(f"encoder_attn.{n}", hidden, hidden, bias if n != "k_proj" else keyed, used=0) for n in names]
    return Part(tuple(linears))


EXTRAS: dict[str, Reader] = {
    "per_layer_inputs": _per_layer_inputs,
    "experts_beside": _experts_beside,
    "alternating_updates": _alternating_updates,
    "cross_attention": _cross_attention,
    "expert_norm": _expert_norm,
    "head_scales": _head_scales,
    "inner_norms": _inner_norms,
    "post_norms": _post_norms,
    "falcon_norms": _falcon_norms,
    "sandwich_norms": _sandwich_norms,
    "first_norm_missing": _first_norm_missing,
    "last_bias_only": _last_bias_only,
}
"""Readers by the names in `Family.extras`; names that are not here are read by the kind they concern."""


def extra_parts(layer: Layer) -> tuple[Part, ...]:
    return tuple(EXTRAS[name](layer) for name in layer.family.extras if name in EXTRAS)


class Outside(NamedTuple):
    """What a family has outside its layers: matrices, small parameters, and tables of which rows are gathered."""

    linears: tuple[Linear, ...] = ()
    vectors: int = 0
    gathered: int = 0


def _outside_inputs(fields: Fields, layers: int) -> Outside:
    width = fields.count("hidden_size_per_layer_input", default=0)
    if not width:
        return Outside()
    rows = fields.size("vocab_size_per_layer_input", "vocab_size")
    projection = Linear("per_layer_model_projection", fields.size("hidden_size"), layers * width)
    return Outside((projection,), vectors=width, gathered=rows * layers * width)


def _embedding_norm(fields: Fields, layers: int) -> Outside:
    return Outside(vectors=2 * fields.size("hidden_size"))


def _token_types(fields: Fields, layers: int) -> Outside:
    """BERT's embedding of sentence types, and ERNIE's of tasks."""
    rows = fields.count("type_vocab_size", default=0)
    if fields.flag("use_task_id"):
        rows += fields.size("task_type_vocab_size")
    return Outside(gathered=rows * fields.size("embedding_size", "hidden_size"))


def _bert_head(fields: Fields, layers: int) -> Outside:
    """BERT's head: a matrix with bias and a norm before the table."""
    hidden = fields.size("hidden_size")
    width = fields.size("embedding_size", default=hidden)
    return Outside((Linear("head.dense", hidden, width, True, per="logit"),), vectors=2 * width)


def _narrow_embedding(fields: Fields, layers: int) -> Outside:
    """ELECTRA: a matrix after a table narrower than the model."""
    hidden = fields.size("hidden_size")
    width = fields.size("embedding_size", default=hidden)
    norm = 2 * width
    return Outside((Linear("embeddings_project", width, hidden, True),) if width != hidden else (), vectors=norm)


def _embedding_norm_scale(fields: Fields, layers: int) -> Outside:
    return Outside(vectors=fields.size("hidden_size"))


def _head_transform(fields: Fields, layers: int) -> Outside:
    """BERT's head: a matrix and a norm before the table."""
    hidden = fields.size("hidden_size")
    return Outside(
        (Linear("lm_head.dense", hidden, hidden, fields.flag("classifier_bias"), per="logit"),), vectors=hidden
    )


def _embedding_projection(fields: Fields, layers: int) -> Outside:
    """OPT: a table narrower than the model, with a matrix after it and one before the head."""
    hidden = fields.size("hidden_size")
    width = fields.size("word_embed_proj_dim", default=hidden)
    last = 0 if fields.flag("do_layer_norm_before") and not fields.flag("_remove_final_layer_norm") else -2 * hidden
    if width == hidden:
        return Outside(vectors=last)
    return Outside((Linear("project_in", width, hidden), Linear("project_out", hidden, width)), vectors=last)


def _streams(fields: Fields, layers: int) -> Outside:
    """Gemma 3n: matrices that make the other streams, and that bring them together."""
    hidden = fields.size("hidden_size")
    count = fields.size("altup_num_inputs") - 1
    names = ("altup_projections", "altup_unembed_projections")
    if count > _MOST_STREAMS:
        raise ConfigError(
            f"{fields.name}: altup_num_inputs is {count + 1}, more than any model has", "Correct it in the config."
        )
    return Outside(tuple(Linear(f"{n}.{i}", hidden, hidden) for n in names for i in range(count)))


OUTSIDE: dict[str, Callable[[Fields, int], Outside]] = {
    "per_layer_inputs": _outside_inputs,
    "embedding_norm": _embedding_norm,
    "embedding_norm_scale": _embedding_norm_scale,
    "head_transform": _head_transform,
    "token_types": _token_types,
    "bert_head": _bert_head,
    "narrow_embedding": _narrow_embedding,
    "embedding_projection": _embedding_projection,
    "alternating_updates": _streams,
}


def outside(fields: Fields, layers: int, family: Family) -> Outside:
    """Everything outside the layers that `family` has beside table, positions, last norm and head."""
    found = [OUTSIDE[name](fields, layers) for name in family.extras if name in OUTSIDE]
    return Outside(
        tuple(li for o in found for li in o.linears),
        sum(o.vectors for o in found),
        sum(o.gathered for o in found),
    )
