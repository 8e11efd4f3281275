"""Readers of attention: which matrices a layer's fields mean, and what its cache holds.

To add a kind, add a function with `@_kind(name)`; a family names it in `attention_kind`, or
`attention_part` recognises it by its fields.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelroof.models.errors import ConfigError
from kernelroof.models.family import Layer
from kernelroof.models.fields import shortened, whole
from kernelroof.models.layers import Attention, Linear, Part, attention

Reader = Callable[[Layer], Part]
_READERS: dict[str, Reader] = {}


def _kind(name: str) -> Callable[[Reader], Reader]:
    def register(reader: Reader) -> Reader:
        _READERS[name] = reader
        return reader

    return register


def attention_part(layer: Layer) -> Part:
    """The attention of a layer; latent attention where the config has its ranks."""
    kind = layer.family.attention_kind or ("latent" if layer.fields.has("kv_lora_rank") else "heads")
    return _READERS[kind](layer)


def window_of(layer: Layer) -> int | None:
    """How many of the latest tokens a query of this layer sees; None: all."""
    if layer.kind == "sliding_attention":
        return layer.fields.size("sliding_window")
    if layer.kind == "chunked_attention":
        return layer.fields.size("attention_chunk_size")
    return None


def head_counts(layer: Layer) -> tuple[int, int]:
    """Query heads and key-value heads of this layer."""
    fields = layer.fields
    prefix = _prefix(layer, "num_attention_heads")
    if fields.has("num_attention_heads_per_layer"):
        each = fields.per_layer("num_attention_heads_per_layer", layer.layers)
        heads = whole(each[layer.position], f"{fields.name}: num_attention_heads_per_layer")
    else:
        heads = fields.size(f"{prefix}num_attention_heads", "num_attention_heads")
    kv_field = f"{_prefix(layer, 'num_key_value_heads')}num_key_value_heads"
    if fields.flag("new_decoder_architecture"):
        kv_heads = fields.size("num_kv_heads", default=heads)
    elif fields.flag("multi_query"):
        kv_heads = 1
    elif (
        layer.kind == "full_attention" and fields.flag("attention_k_eq_v") and fields.has("num_global_key_value_heads")
    ):
        kv_heads = fields.size("num_global_key_value_heads")
    else:
        kv_heads = fields.size(kv_field, "num_key_value_heads", default=heads)
    if heads % kv_heads:
        named = fields.named("num_key_value_heads")
        raise ConfigError(
            f"{fields.name}: {fields.named('num_attention_heads')} {heads} is not a multiple of {named} {kv_heads}",
            "Correct one of the two in the config.",
        )
    return heads, kv_heads


def head_width(layer: Layer, heads: int) -> int:
    """Width of a query and key head."""
    fields, hidden = layer.fields, layer.hidden
    if layer.kind == "full_attention" and fields.has("global_head_dim"):
        return _even(layer, fields.size("global_head_dim"))
    if fields.has("head_dim"):
        return _even(layer, fields.size(f"{_prefix(layer, 'head_dim')}head_dim", "head_dim"))
    width = fields.size("attention_hidden_size", default=hidden)
    if width % heads:
        raise ConfigError(
            f"{fields.name}: {fields.named('hidden_size')} {width} is not a multiple of "
            f"{fields.named('num_attention_heads')} {heads} and head_dim is absent",
            "Add head_dim to the config.",
        )
    return _even(layer, width // heads)


def _prefix(layer: Layer, field: str) -> str:
    """Some families give windowed layers sizes of their own, under the same names with `swa_` before them."""
    return "swa_" if layer.windowed and layer.fields.has(f"swa_{field}") else ""


def _even(layer: Layer, head_dim: int) -> int:
    if layer.family.rotary and head_dim % 2:
        raise ConfigError(
            f"{layer.fields.name}: head_dim is {head_dim}, and rotary positions turn its elements in pairs",
            "Give an even head_dim (hidden_size / num_attention_heads where it is absent).",
        )
    return head_dim


def _shares(layer: Layer) -> bool:
    """The last `num_kv_shared_layers` layers read the K and V of an earlier layer of their kind."""
    shared = layer.fields.count("num_kv_shared_layers", default=0)
    return layer.position >= layer.layers - shared


@_kind("heads")
def heads_attention(layer: Layer) -> Part:
    """Multi-head, grouped-query or multi-query attention with its projections."""
    fields, family, hidden = layer.fields, layer.family, layer.hidden
    heads, kv_heads = head_counts(layer)
    head_dim = head_width(layer, heads)
    value_dim = fields.size(f"{_prefix(layer, 'v_head_dim')}v_head_dim", "v_head_dim", default=head_dim)
    q_width, k_width, v_width = heads * head_dim, kv_heads * head_dim, kv_heads * value_dim
    bias, output_bias = fields.rule(family.qkv_bias), fields.rule(family.output_bias)
    keeps = not _shares(layer)
    same = layer.kind == "full_attention" and fields.flag("attention_k_eq_v")
    wide = 2 if family.gate == "doubled" else 1
    linears = [Linear("self_attn.q_proj", hidden, wide * q_width, bias)]
    if keeps:
        keyed = bias and "unbiased_keys" not in family.extras
        linears.append(Linear("self_attn.k_proj", hidden, k_width, keyed))
    if keeps and not same:
        linears.append(Linear("self_attn.v_proj", hidden, v_width, bias))
    if family.fused_qkv:
        linears = [Linear("self_attn.qkv_proj", hidden, q_width + k_width + v_width, bias)]
    if family.gate == "width":
        linears.append(Linear("self_attn.gate_proj", hidden, heads * value_dim))
    elif family.gate == "heads":
        linears.append(Linear("self_attn.g_proj", hidden, heads))
    linears.append(Linear("self_attn.o_proj", heads * value_dim, hidden, output_bias))
    core = attention(heads, kv_heads, head_dim, value_dim, window_of(layer), keeps)
    sinks = _sinks(layer) * heads
    wide = sinks if family.sink_bits == 32 else 0
    return Part(
        linears=tuple(linears),
        vectors=_norm_elements(layer, heads, kv_heads if keeps else 0, head_dim) + sinks - wide,
        wide_vectors=wide,
        attention=core._replace(masked=family.explicit_mask, sinks=_sinks(layer)),
    )


def _norm_elements(layer: Layer, heads: int, kv_heads: int, head_dim: int) -> int:
    """Elements of the norms of queries and keys."""
    family = layer.family
    if not family.qk_norm or (family.qk_norm_if and not layer.fields.flag(family.qk_norm_if)):
        return 0
    if family.qk_norm == "width":
        return (heads + kv_heads) * head_dim
    return (2 if kv_heads else 1) * head_dim * (2 if family.qk_norm == "affine" else 1)


def _sinks(layer: Layer) -> bool:
    return layer.family.sinks == "all" or (layer.family.sinks == "windowed" and layer.windowed)


@_kind("doubled_in_windows")
def doubled_attention(layer: Layer) -> Part:
    """MiMo-V2: windowed layers have twice the key-value heads."""
    if not layer.windowed or layer.fields.has("swa_num_key_value_heads"):
        return heads_attention(layer)
    doubled = {"num_key_value_heads": 2 * layer.fields.size("num_key_value_heads")}
    return heads_attention(layer._replace(fields=layer.fields.changed(doubled)))


@_kind("differential")
def differential_attention(layer: Layer) -> Part:
    """Differential attention (DiffLlama): attended twice, over each half of the values; four vectors weigh the two."""
    part = heads_attention(layer)
    core = part.attention
    assert core is not None
    twice = core._replace(more_flops=2 * core.heads * (core.head_dim + core.value_dim))
    return part._replace(vectors=part.vectors + 4 * core.head_dim, attention=twice)


@_kind("latent")
def latent_attention(layer: Layer) -> Part:
    """Multi-head latent attention (DeepSeek V2): K and V of all heads are expanded from one latent per token.

    transformers keeps the latent and one rotated key, and expands all of them again in every forward;
    before 5.15 it kept the expanded heads.
    """
    fields, hidden = layer.fields, layer.hidden
    heads = fields.size("num_attention_heads")
    rank, rope = fields.size("kv_lora_rank"), fields.size("qk_rope_head_dim")
    nope, value_dim = fields.count("qk_nope_head_dim"), fields.size("v_head_dim")
    head_dim = nope + rope
    bias = fields.rule(layer.family.qkv_bias)
    vectors = rank
    if fields.has("q_lora_rank"):
        q_rank = fields.size("q_lora_rank")
        queries: tuple[Linear, ...] = (
            Linear("self_attn.q_a_proj", hidden, q_rank, bias),
            Linear("self_attn.q_b_proj", q_rank, heads * head_dim),
        )
        vectors += q_rank
    else:
        queries = (Linear("self_attn.q_proj", hidden, heads * head_dim),)
    linears: tuple[Linear, ...] = (
        *queries,
        Linear("self_attn.kv_a_proj_with_mqa", hidden, rank + rope, bias),
        Linear("self_attn.kv_b_proj", rank, heads * (nope + value_dim), per="context" if layer.latent else "token"),
        Linear("self_attn.o_proj", heads * value_dim, hidden, fields.rule(layer.family.output_bias)),
    )
    if layer.family.gate == "heads":
        linears = (*linears, Linear("self_attn.g_proj", hidden, heads))
    kept = rank + rope if layer.latent else heads * (head_dim + value_dim)
    core = Attention(heads, heads, head_dim, value_dim, window_of(layer), kept, kept)
    # Queries as projected and with their rotated part, keys put together of two parts, keys and values as made of
    # the latent, and the result.
    inner = heads * (3 * head_dim + nope + 2 * value_dim)
    part = Part(linears, vectors, attention=core._replace(masked=layer.family.explicit_mask), inner=inner)
    return _indexed(layer, part, core) if fields.has("index_topk") else part


def _indexed(layer: Layer, part: Part, core: Attention) -> Part:
    """Add the indexer of DeepSeek sparse attention: it scores every key, and keeps one small key per token itself.

    Its heads' scores are a product of [index_head_dim] per head, key and query, and their weighted sum
    another of one element per head. transformers then masks what was not chosen, so all pairs are computed.
    """
    fields, hidden = layer.fields, layer.hidden
    masked = core._replace(masked=True)
    if _indexer_types(layer)[layer.position] != "full":
        return part._replace(attention=masked)
    count, width = fields.size("index_n_heads"), fields.size("index_head_dim")
    linears = (
        Linear("self_attn.indexer.wq_b", fields.size("q_lora_rank"), count * width),
        Linear("self_attn.indexer.wk", hidden, width),
        Linear("self_attn.indexer.weights_proj", hidden, count),
    )
    return part._replace(
        linears=part.linears + linears,
        vectors=part.vectors + 2 * width,
        attention=masked._replace(
            kept_width=core.kept_width + width,
            read_width=core.read_width + width,
            more_flops=2 * count * (width + 1),
        ),
    )


def _indexer_types(layer: Layer) -> tuple[str, ...]:
    """Layers that choose keys themselves ("full"), or take an earlier layer's choice ("shared")."""
    fields = layer.fields
    if fields.has("indexer_types"):
        return tuple(fields.per_layer("indexer_types", layer.layers))
    if fields.has("index_topk_pattern"):
        pattern = str(fields.get("index_topk_pattern"))
        if len(pattern) < layer.layers or set(pattern) - set("FS"):
            raise ConfigError(
                f"{fields.name}: index_topk_pattern is {shortened(pattern)}, not one of F and S for each of "
                f"{layer.layers} layers",
                "Correct it in the config.",
            )
        return tuple("full" if letter == "F" else "shared" for letter in pattern)
    step, offset = fields.size("index_topk_freq", default=1), fields.count("index_skip_topk_offset", default=2)
    return tuple("full" if max(i - offset + 1, 0) % step == 0 else "shared" for i in range(layer.layers))
