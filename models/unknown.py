"""Model types that are in no table, read by their fields where the readers understand all of these."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kernelroof.models.errors import NoClosedFormError
from kernelroof.models.families import FAMILIES
from kernelroof.models.family import Family

_NEEDED = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size", "max_position_embeddings")

_READ = frozenset(
    {
        *_NEEDED,
        *("num_key_value_heads", "head_dim", "v_head_dim", "intermediate_size", "moe_intermediate_size"),
        *("dense_intermediate_size", "attention_bias", "mlp_bias", "use_qk_norm", "tie_word_embeddings"),
        *("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "qk_head_dim"),
        *("index_topk", "index_n_heads", "index_head_dim", "indexer_types", "index_topk_freq", "index_topk_pattern"),
        *("index_skip_topk_offset", "sliding_window", "use_sliding_window", "layer_types", "max_window_layers"),
        *("attention_chunk_size", "hybrid_layer_pattern", "block_configs", "mlp_layer_types", "moe_layers"),
        *("moe_layers_enum", "moe_layer_freq", "first_k_dense_replace", "num_dense_layers", "decoder_sparse_step"),
        *("mlp_only_layers", "interleave_moe_layer_step", "num_local_experts", "num_experts", "n_routed_experts"),
        *("moe_num_experts", "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k"),
        *("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "shared_expert_intermediate_size"),
        *("moe_shared_expert_intermediate_size", "share_expert_dim", "shared_intermediate_size"),
    }
)
"""Fields that the readers of attention, experts and layer kinds understand."""

_HARMLESS = re.compile(
    r"rope|rotary|yarn|mrope|theta|dropout|_token_id$|_token_ids$|^_|hidden_act|hidden_activation|activation_function|"
    r"initializer|_eps$|epsilon|softcap|soft_cap|scal(e|ing)|_coef$|_alpha$|loss|jitter|norm_topk|scoring_func|"
    r"topk_method|topk_group|^n_group|^num_nextn|^num_mtp|mtp|quantization|dtype|^architectures$|^auto_map$|"
    r"^model_type$|version|use_cache|^output_|^return_|pretraining_tp|^ep_size$|id2label|label2id|problem_type|"
    r"^is_|chunk_size_feed_forward|task_specific|_config$|seq_aux|router_bias|routing_bias|qk_norm_type|multiplier|"
    r"^eos_|^bos_|^pad_|^name$|^license"
)
"""Fields that change neither weights nor cache, or concern what is not counted (quantisation, multi-token layers)."""


def generic_family(text: Mapping[str, Any], model_type: str, name: str) -> tuple[Family, tuple[str, ...]]:
    """A row for a model type that is in no table, with the assumptions it makes.

    Raises:
        NoClosedFormError: a field that is needed is missing, or one is there that no reader understands.
    """
    known = f"Known: {', '.join(sorted(FAMILIES))}."
    missing = [f for f in _NEEDED if text.get(f) is None]
    if missing:
        raise NoClosedFormError(
            f"{name}: no closed form for model_type {model_type!r}, and its config lacks {', '.join(missing)} to be "
            "read by its fields",
            known,
        )
    unread = [f for f in text if f not in _READ and text[f] not in (None, False, 0) and not _HARMLESS.search(f)]
    if unread:
        raise NoClosedFormError(
            f"{name}: no closed form for model_type {model_type!r}: what {', '.join(unread[:5])} means for weights and "
            "cache is not known",
            known,
        )
    if text.get("block_configs"):
        return Family(), (
            f"model_type {model_type} is in no table: read by block_configs, without biases, a norm before each half "
            "that a block has",
        )
    family = Family(
        "attention_bias",
        "attention_bias",
        "mlp_bias",
        qk_norm="width" if text.get("qk_norm_type") == "per_layer" else "head",
        qk_norm_if="use_qk_norm",
    )
    return family, (
        f"model_type {model_type} is in no table: read by its fields, assuming two norms per layer, gated MLPs, "
        f"{'norms of queries and keys' if text.get('use_qk_norm') else 'no norms of queries and keys'}, biases only "
        "where attention_bias or mlp_bias ask for them, and no layers beyond num_hidden_layers",
    )
