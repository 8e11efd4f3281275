"""The table of model types: what their code fixes. Everything else is read from the config's fields.

Sizes here were compared with the meta module of every row (`tests/models/test_architectures.py`).
Defaults are those of the config classes of transformers 5.24, and only where a config may leave the
field out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelroof.models.family import Family
from kernelroof.models.layer_types import (
    alternating,
    always,
    any_window,
    chosen,
    every,
    first_of,
    periodic,
    qwen_moe_windows,
    qwen_windows,
    repeated,
    switched_window,
    unrotated,
)

_TIED: Mapping[str, Any] = {"tie_word_embeddings": True}
_GPT = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
}
_BIASED = Family("attention_bias", "attention_bias", "mlp_bias")
_ATTENTION_BIAS = Family("attention_bias", "attention_bias")
_QWEN3 = Family("attention_bias", "attention_bias", qk_norm="head", pattern=qwen_windows)
_GPT2 = Family(
    True,
    True,
    True,
    fused_qkv=True,
    mlp="plain",
    norm=2,
    positions="max_position_embeddings",
    rotary=False,
    aliases=_GPT,
    defaults=_TIED,
)
_DEEPSEEK = Family("attention_bias", "attention_bias", router_bits=32, pattern=always("full_attention"))
_SPARSE = _DEEPSEEK._replace(pattern=always("indexed_attention"))
_GEMMA2 = Family(
    "attention_bias",
    "attention_bias",
    norms=4,
    pattern=alternating("sliding_attention", "full_attention"),
    defaults=_TIED,
    eager=True,
)
_GEMMA3 = _GEMMA2._replace(
    qk_norm="head", pattern=every("sliding_window_pattern", "sliding_attention", 6), eager=False
)
_DELTA_HYBRID = Family(
    "attention_bias",
    "attention_bias",
    qk_norm="head",
    gate="doubled",
    pattern=every("full_attention_interval", "linear_attention", 4),
)
_GRANITE_SWA = Family(
    "attention_bias", "attention_bias", "mlp_bias", sinks=True, pattern=first_of(4, "sliding_attention"), eager=True
)
_MAMBA = Family(
    state_kind="mamba",
    mlp="none",
    norms=1,
    pattern=always("linear_attention"),
    aliases={"num_hidden_layers": "n_layer", "hidden_size": "d_model"},
    defaults={**_TIED, "expand": 2, "conv_kernel": 4, "state_size": 16, "use_conv_bias": True},
)
_BART = Family(
    True,
    True,
    True,
    mlp="plain",
    norm=2,
    norms=3,
    positions="max_position_embeddings",
    rotary=False,
    last_norm=False,
    aliases={
        "hidden_size": "d_model",
        "num_attention_heads": "decoder_attention_heads",
        "num_hidden_layers": "decoder_layers",
        "intermediate_size": "decoder_ffn_dim",
    },
    defaults=_TIED,
    extras=("cross_attention",),
)

FAMILIES: dict[str, Family] = {
    # Dense, grouped-query attention
    "llama": _BIASED,
    "mistral": Family(),
    "ministral3": Family(),
    "qwen2": Family(True, pattern=qwen_windows),
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3._replace(pattern=always("full_attention")),
    "apertus": Family("attention_bias", "attention_bias", mlp="plain", mlp_vectors=2, qk_norm="head"),
    "apertus1p5_text": Family("attention_bias", "attention_bias", mlp="plain", mlp_vectors=2, qk_norm="head"),
    "arcee": _BIASED._replace(mlp="plain"),
    "cohere": Family("attention_bias", "attention_bias", norms=1, qk_norm="width", qk_norm_if="use_qk_norm", defaults=_TIED),
    "cohere2": Family(
        "attention_bias",
        "attention_bias",
        norms=1,
        pattern=every("sliding_window_pattern", "sliding_attention", 4),
        defaults=_TIED,
    ),
    "cwm": Family(pattern=first_of(4, "sliding_attention")),
    "diffllama": _ATTENTION_BIAS,
    "ernie4_5": Family("use_bias", "use_bias", "use_bias", defaults=_TIED),
    "exaone": _BIASED,
    "exaone4": Family(qk_norm="head", pattern=every("sliding_window_pattern", "sliding_attention", 4)),
    "gemma": Family("attention_bias", "attention_bias", defaults=_TIED),
    "gemma2": _GEMMA2,
    "vaultgemma": _GEMMA2._replace(norms=2),
    "gemma3_text": _GEMMA3,
    "gemma4_text": _GEMMA3._replace(extras=("per_layer_inputs", "experts_beside"), mlp="beside_experts"),
    "gemma4_unified_text": _GEMMA3._replace(mlp="beside_experts"),
    "glm": Family("attention_bias", fused_mlp=True),
    "glm4": Family("attention_bias", fused_mlp=True, norms=4),
    "granite": _BIASED,
    "granite_swa": _GRANITE_SWA._replace(defaults=_TIED),
    "helium": Family("attention_bias", False, "mlp_bias"),
    "hunyuan_v1_dense": Family("attention_bias", "attention_bias", qk_norm="head"),
    "hyperclovax": _BIASED,
    "internlm3": Family("qkv_bias", "attention_bias", "mlp_bias"),
    "iquestcoder": _BIASED,
    "jais2": Family("attention_bias", "attention_bias", "mlp_bias", mlp="plain", norm=2),
    "mimo": Family(
        True,
        pattern=qwen_windows,
        note="model_type mimo is not part of transformers: read as qwen2 (biases of q, k, v), without its layers for "
        "the prediction of several tokens",
    ),
    "ministral": Family(pattern=any_window),
    "nanochat": Family("attention_bias", "attention_bias", mlp="plain", norm=0, last_norm=False),
    "nemotron": Family("attention_bias", "attention_bias", "mlp_bias", mlp="plain", norm=2),
    "olmo": Family("attention_bias", "attention_bias", norm=0, last_norm=False),
    "olmo2": Family("attention_bias", "attention_bias", qk_norm="width"),
    "olmo3": Family("attention_bias", "attention_bias", qk_norm="width", pattern=every(4, "sliding_attention")),
    "phi": Family(True, True, True, qk_norm="affine", qk_norm_if="qk_layernorm", mlp="plain", norms=1, norm=2, head_bias=True),
    "phi3": Family(fused_qkv=True, fused_mlp=True),
    "seed_oss": Family("attention_bias", "attention_out_bias", "mlp_bias"),
    "smollm3": _BIASED._replace(pattern=unrotated("sliding_attention"), defaults=_TIED),
    "stablelm": Family("use_qkv_bias", norm=2),
    "starcoder2": Family("use_bias", "use_bias", "use_bias", mlp="plain", norm=2, defaults=_TIED),
    "emu3_text_model": _BIASED,
    # Dense, before grouped-query attention
    "biogpt": Family(
        True, True, True, mlp="plain", norm=2, positions="max_position_embeddings", position_offset=2, rotary=False,
        defaults=_TIED,
    ),
    "bitnet": Family("attention_bias", "attention_bias"),
    "bloom": Family(
        True,
        True,
        True,
        fused_qkv=True,
        mlp="plain",
        norm=2,
        rotary=False,
        aliases={"num_attention_heads": "n_head", "num_hidden_layers": "n_layer", "hidden_size": "n_embed"},
        defaults=_TIED,
    ),
    "codegen": Family(
        False, False, True, fused_qkv=True, mlp="plain", norm=2, norms=1, head_bias=True, aliases=_GPT
    ),
    "falcon": Family(
        "bias",
        "bias",
        "bias",
        fused_qkv=True,
        mlp="plain",
        norm=2,
        aliases={"intermediate_size": "ffn_hidden_size", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
        defaults={"multi_query": True, "parallel_attn": True, **_TIED},
    ),
    "gpt2": _GPT2,
    "gpt-sw3": _GPT2,
    "openai-gpt": _GPT2._replace(last_norm=False),
    "gpt_bigcode": _GPT2._replace(defaults={"multi_query": True, **_TIED}),
    "gpt_neox": Family(
        "attention_bias", "attention_bias", True, fused_qkv=True, mlp="plain", norm=2,
        defaults={"attention_bias": True},
    ),
    "gptj": Family(False, False, True, mlp="plain", norm=2, norms=1, head_bias=True, aliases=_GPT),
    "mpt": Family(
        fused_qkv=True,
        mlp="plain",
        rotary=False,
        aliases={"hidden_size": "d_model", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers",
                 "max_position_embeddings": "max_seq_len"},
        defaults=_TIED,
    ),
    "opt": Family(
        "enable_bias",
        "enable_bias",
        "enable_bias",
        mlp="plain",
        norm=2,
        positions="max_position_embeddings",
        position_offset=2,
        rotary=False,
        aliases={"intermediate_size": "ffn_dim"},
        defaults={"enable_bias": True, "do_layer_norm_before": True, **_TIED},
    ),
    "persimmon": Family(
        True, True, True, fused_qkv=True, qk_norm="affine", qk_norm_if="qk_layernorm", mlp="plain", norm=2,
        defaults={"qk_layernorm": True},
    ),
    "xglm": Family(
        True,
        True,
        True,
        mlp="plain",
        norm=2,
        rotary=False,
        aliases={"hidden_size": "d_model", "num_attention_heads": "attention_heads", "num_hidden_layers": "num_layers",
                 "intermediate_size": "ffn_dim"},
        defaults=_TIED,
    ),
    # Decoders of encoder-decoders, which hold an attention over the encoder that a causal LM leaves idle
    "bart": _BART._replace(position_offset=2),
    "blenderbot": _BART._replace(last_norm=True),
    "blenderbot-small": _BART,
    "marian": _BART._replace(aliases={**_BART.aliases, "vocab_size": "decoder_vocab_size"}),
    "mbart": _BART._replace(position_offset=2, last_norm=True),
    "mvp": _BART._replace(position_offset=2),
    "pegasus": _BART._replace(last_norm=True),
    "plbart": _BART._replace(position_offset=2),
    # Mixtures of experts
    "afmoe": Family(
        "attention_bias", "attention_bias", qk_norm="head", gate="width", norms=4, wide_expert_vectors=1,
        pattern=every("global_attn_every_n_layers", "sliding_attention", 4),
    ),
    "aria_text": _BIASED,
    "beam": Family(
        "attention_bias", "attention_bias", qk_norm="head", gate="width", norms=4, router_bits=32,
        pattern=every(6, "sliding_attention"),
    ),
    "cohere2_moe": Family(
        "attention_bias",
        "attention_bias",
        norms=1,
        pattern=every("sliding_window_pattern", "sliding_attention", 4),
        defaults=_TIED,
    ),
    "dots1": Family("attention_bias", "attention_bias", qk_norm="head", pattern=qwen_windows),
    "ernie4_5_moe": Family("use_bias", "use_bias", "use_bias", router_bits=32, wide_expert_vectors=1, defaults=_TIED),
    "exaone_moe": Family(
        qk_norm="head", router_bits=32, pattern=every("sliding_window_pattern", "sliding_attention", 4)
    ),
    "flex_olmo": Family("attention_bias", "attention_bias", qk_norm="width"),
    "flint": Family("attention_bias", "attention_bias", qk_norm="head", sinks=True, router_bits=32, eager=True),
    "glm4_moe": Family(
        "attention_bias", False, qk_norm="head", qk_norm_if="use_qk_norm", router_bits=32, pattern=always("full_attention")
    ),
    "gpt_oss": Family(
        "attention_bias",
        "attention_bias",
        sinks=True,
        router_bias=True,
        expert_bias=True,
        pattern=alternating("sliding_attention", "full_attention"),
        defaults={"attention_bias": True},
        eager=True,
    ),
    "granitemoe": _ATTENTION_BIAS,
    "granitemoeshared": _ATTENTION_BIAS,
    "granitemoe_swa": _GRANITE_SWA._replace(mlp_bias=False),
    "hunyuan_v1_moe": Family("attention_bias", "attention_bias", qk_norm="head"),
    "hy_v3": Family("attention_bias", "attention_bias", "mlp_bias", qk_norm="head", router_bits=32),
    "kolibri1": Family(qk_norm="head", norms=4, pattern=every(5, "sliding_attention")),
    "laguna": Family(
        "attention_bias", "attention_bias", qk_norm="head", gate="heads", expert_vectors=1,
        pattern=always("full_attention"),
    ),
    "llama4_text": Family(
        "attention_bias",
        "attention_bias",
        pattern=unrotated("chunked_attention"),
        defaults={"interleave_moe_layer_step": 1, "attention_chunk_size": 8192},
    ),
    "mellum": Family("attention_bias", "attention_bias", qk_norm="head", pattern=always("full_attention")),
    "mimo_v2_flash": Family("attention_bias", False, router_bits=32, eager=True),
    "minimax_m2": Family(qk_norm="width", pattern=always("full_attention")),
    "mixtral": Family(),
    "olmoe": Family("attention_bias", "attention_bias", qk_norm="width"),
    "phimoe": Family("attention_bias", "attention_bias", norm=2, head_bias="lm_head_bias"),
    "qwen2_moe": Family("qkv_bias", shared_gate=True, pattern=qwen_moe_windows, defaults={"qkv_bias": True}),
    "qwen3_moe": Family("attention_bias", "attention_bias", qk_norm="head", pattern=switched_window),
    "qwen3_vl_moe_text": Family("attention_bias", "attention_bias", qk_norm="head", pattern=always("full_attention")),
    "sarvam_moe": Family(
        "attention_bias", False, qk_norm="head", qk_norm_if="use_qk_norm", router_bits=32, pattern=always("full_attention")
    ),
    "solar_open": Family("attention_bias", False, router_bits=32, pattern=always("full_attention")),
    # Latent attention
    "axk1": _DEEPSEEK,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _SPARSE,
    "glm4_moe_lite": _DEEPSEEK,
    "glm_moe_dsa": _SPARSE,
    "minicpm3": Family("attention_bias", "attention_bias", "mlp_bias", defaults=_TIED),
    "sarvam_mla": _DEEPSEEK,
    "youtu": Family("attention_bias", "attention_bias", defaults=_TIED),
    # States, and hybrids of states and attention
    "bamba": Family("attention_bias", "attention_bias", "mlp_bias", pattern=chosen("attn_layer_indices", "linear_attention", "linear_attention")),
    "falcon_h1": Family("attention_bias", "attention_bias", "mlp_bias", pattern=always("hybrid")),
    "falcon_mamba": _MAMBA,
    "granitemoehybrid": Family("attention_bias", "attention_bias", pattern=always("linear_attention")),
    "jamba": Family(pattern=periodic, extras=("normed_scan",)),
    "kimi_linear": _DEEPSEEK._replace(pattern=None),
    "lara_mini": Family("attention_bias", "attention_bias", qk_norm="head", defaults=_TIED),
    "lfm2": Family(
        qk_norm="head", pattern=chosen("full_attn_idxs", "conv"), aliases={"intermediate_size": "block_ff_dim"}, defaults=_TIED
    ),
    "lfm2_moe": Family(qk_norm="head", defaults=_TIED),
    "mamba": _MAMBA,
    "mamba2": _MAMBA._replace(state_kind="mamba2", defaults={**_MAMBA.defaults, "tie_word_embeddings": False}),
    "minimax": Family(state_kind="lightning", pattern=alternating("full_attention", "linear_attention")),
    "nemotron_h": Family(
        "attention_bias", "attention_bias", "mlp_bias", mlp="plain", norms=1, router_bits=32, state_kind="mamba2"
    ),
    "olmo_hybrid": Family("attention_bias", "attention_bias", qk_norm="width", extras=("wide_decay",)),
    "qwen3_next": _DELTA_HYBRID._replace(shared_gate=True),
    "qwen3_5_text": _DELTA_HYBRID,
    "qwen3_5_moe_text": _DELTA_HYBRID._replace(shared_gate=True),
    "recurrent_gemma": Family(pattern=repeated("block_types")),
}

SAME_CODE = {
    "kimi_k2": "deepseek_v3",
    "gemma3_text_model": "gemma3_text",
}
"""Model types that published configs use for the code of another one."""

REFUSED: dict[str, str] = {}
"""Model types that transformers knows and the closed form refuses, with the reason."""
