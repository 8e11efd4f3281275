"""The table of model types with experts, latent attention or recurrent states; see `kernelroof.models.families`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelroof.models.family import Family
from kernelroof.models.family_rows import ATTENTION_BIAS, BIASED, GRANITE_SWA
from kernelroof.models.layer_types import (
    alternating,
    always,
    chosen,
    every,
    listed,
    periodic,
    qwen_moe_windows,
    qwen_windows,
    switched_window,
    unrotated,
)

_DEEPSEEK = Family("attention_bias", "attention_bias", router_bits=32, pattern=always("full_attention"))
_SPARSE = _DEEPSEEK._replace(pattern=always("indexed_attention"))
_DELTA_HYBRID = Family(
    "attention_bias",
    "attention_bias",
    qk_norm="head",
    gate="doubled",
    pattern=every("full_attention_interval", "linear_attention", 4),
)
_MAMBA = Family(
    state_kind="mamba",
    halves=True,
    norms=1,
    pattern=always("linear_attention"),
    aliases={"num_hidden_layers": "n_layer", "hidden_size": "d_model"},
)
_FIRST_DENSE: Mapping[str, Any] = {"first_k_dense_replace": 1}

SPARSE: dict[str, Family] = {
    # Mixtures of experts
    "afmoe": Family(
        "attention_bias",
        "attention_bias",
        qk_norm="head",
        gate="width",
        norms=4,
        wide_expert_vectors=1,
        pattern=every("global_attn_every_n_layers", "sliding_attention", 4),
    ),
    "aria_text": BIASED,
    "beam": Family(
        "attention_bias",
        "attention_bias",
        qk_norm="head",
        gate="width",
        norms=4,
        router_bits=32,
        pattern=every(6, "sliding_attention", last=True),
        extras=("head_scales",),
        defaults={"first_k_dense_replace": 3},
    ),
    "cohere2_moe": Family(
        "attention_bias",
        "attention_bias",
        norms=1,
        pattern=every("sliding_window_pattern", "sliding_attention", 4),
    ),
    "dbrx": Family(
        fused_qkv=True,
        norm=1,
        aliases={
            "hidden_size": "d_model",
            "num_attention_heads": "n_heads",
            "num_hidden_layers": "n_layers",
            "max_position_embeddings": "max_seq_len",
            "num_key_value_heads": "attn_config.kv_n_heads",
            "intermediate_size": "ffn_config.ffn_hidden_size",
            "num_experts": "ffn_config.moe_num_experts",
            "moe_topk": "ffn_config.moe_top_k",
        },
    ),
    "dots1": Family("attention_bias", "attention_bias", qk_norm="head", router_bits=32, pattern=qwen_windows),
    "ernie4_5_moe": Family("use_bias", "use_bias", "use_bias", router_bits=32, wide_expert_vectors=1),
    "exaone_moe": Family(
        qk_norm="head", router_bits=32, pattern=every("sliding_window_pattern", "sliding_attention", 4)
    ),
    "flex_olmo": Family("attention_bias", "attention_bias", qk_norm="width"),
    "flint": Family(
        "attention_bias",
        "attention_bias",
        qk_norm="head",
        sinks="all",
        sink_bits=32,
        router_bits=32,
        eager=True,
        pattern=listed,
        defaults={"mlp_only_layers": [0, 1]},
    ),
    "glm4_moe": Family(
        "attention_bias",
        False,
        qk_norm="head",
        qk_norm_if="use_qk_norm",
        router_bits=32,
        pattern=always("full_attention"),
    ),
    "gpt_oss": Family(
        "attention_bias",
        "attention_bias",
        sinks="all",
        router_bias=True,
        expert_bias=True,
        pattern=alternating("sliding_attention", "full_attention"),
        eager=True,
    ),
    "granitemoe": ATTENTION_BIAS,
    "granitemoeshared": ATTENTION_BIAS,
    "granitemoe_swa": GRANITE_SWA._replace(mlp_bias=False),
    "hunyuan_v1_moe": Family("attention_bias", "attention_bias", qk_norm="head", defaults={"num_shared_experts": 1}),
    "hy_v3": Family(
        "attention_bias", "attention_bias", "mlp_bias", qk_norm="head", router_bits=32, defaults=_FIRST_DENSE
    ),
    "kolibri1": Family(qk_norm="head", norms=4, pattern=every(5, "sliding_attention")),
    "laguna": Family(
        "attention_bias",
        "attention_bias",
        qk_norm="head",
        gate="heads",
        expert_vectors=1,
        defaults=_FIRST_DENSE,
        pattern=always("full_attention"),
    ),
    "llama4_text": Family(
        "attention_bias",
        "attention_bias",
        dense_experts=True,
        pattern=unrotated("chunked_attention"),
        defaults={"num_shared_experts": 1},
    ),
    "mellum": Family("attention_bias", "attention_bias", qk_norm="head", pattern=always("full_attention")),
    "mimo_v2_flash": Family(
        "attention_bias",
        False,
        router_bits=32,
        sinks="windowed",
        attention_kind="doubled_in_windows",
        eager=True,
        pattern=listed,
        defaults=_FIRST_DENSE,
    ),
    "minimax_m2": Family(qk_norm="width", pattern=always("full_attention")),
    "mixtral": Family(),
    "olmoe": Family("attention_bias", "attention_bias", qk_norm="width"),
    "phimoe": Family("attention_bias", "attention_bias", norm=2, head_bias="lm_head_bias"),
    "qwen2_moe": Family("qkv_bias", shared_gate=True, pattern=qwen_moe_windows),
    "qwen3_moe": Family("attention_bias", "attention_bias", qk_norm="head", pattern=switched_window),
    "qwen3_vl_moe_text": Family("attention_bias", "attention_bias", qk_norm="head", pattern=always("full_attention")),
    "sarvam_moe": Family(
        "attention_bias",
        False,
        qk_norm="head",
        qk_norm_if="use_qk_norm",
        router_bits=32,
        pattern=always("full_attention"),
    ),
    "solar_open": Family("attention_bias", False, router_bits=32, pattern=always("full_attention")),
    # Latent attention
    "axk1": _DEEPSEEK._replace(extras=("expert_norm",), defaults=_FIRST_DENSE),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _SPARSE,
    "glm4_moe_lite": _DEEPSEEK._replace(defaults=_FIRST_DENSE),
    "glm_moe_dsa": _SPARSE,
    "minicpm3": Family("attention_bias", "attention_bias", "mlp_bias"),
    "sarvam_mla": _DEEPSEEK,
    "youtu": Family("attention_bias", "attention_bias"),
    # States, and hybrids of states and attention
    "bailing_hybrid": Family(
        "attention_bias",
        "attention_bias",
        gate="heads",
        router_bits=32,
        state_kind="gated_kimi_delta",
        pattern=every("layer_group_size", "linear_attention", 6),
    ),
    "bamba": Family(
        "attention_bias",
        "attention_bias",
        "mlp_bias",
        pattern=chosen("attn_layer_indices", "linear_attention", "linear_attention"),
    ),
    "falcon_h1": Family("attention_bias", "attention_bias", "mlp_bias", pattern=always("hybrid")),
    "falcon_mamba": _MAMBA._replace(eager=True),
    "granitemoehybrid": Family("attention_bias", "attention_bias", pattern=always("linear_attention")),
    "jamba": Family(pattern=periodic, extras=("normed_scan",)),
    "kimi_linear": _DEEPSEEK._replace(pattern=listed, defaults=_FIRST_DENSE),
    "lara_mini": Family("attention_bias", "attention_bias", qk_norm="head", pattern=listed),
    "lfm2": Family(
        qk_norm="head", pattern=chosen("full_attn_idxs", "conv"), aliases={"intermediate_size": "block_ff_dim"}
    ),
    "lfm2_moe": Family(qk_norm="head", pattern=listed),
    "lfm3": Family(qk_norm="head", pattern=listed, extras=("sandwich_norms",)),
    "mamba": _MAMBA._replace(eager=True),
    "mamba2": _MAMBA._replace(eager=True, state_kind="mamba2"),
    "minimax": Family(state_kind="lightning", pattern=alternating("full_attention", "linear_attention")),
    "nemotron_h": Family(
        "attention_bias",
        "attention_bias",
        "mlp_bias",
        halves=True,
        mlp="plain",
        norms=1,
        router_bits=32,
        state_kind="mamba2",
    ),
    "olmo_hybrid": Family("attention_bias", "attention_bias", qk_norm="width", pattern=every(4, "linear_attention")),
    "qwen3_next": _DELTA_HYBRID._replace(shared_gate=True),
    "qwen3_5_text": _DELTA_HYBRID,
    "qwen3_5_moe_text": _DELTA_HYBRID._replace(shared_gate=True),
}
